# SPDX-License-Identifier: Apache-2.0
import numpy as np
import tenon
from picture import HEIGHT, WIDTH, draw_frame, read_picture

frame = np.asarray(tenon.empty((HEIGHT, WIDTH), "uint8"))  # an array of NumPy's, in shared memory
draw_frame(frame, 3)
digit, top, left = read_picture(frame)
print("frame 3 shows a", digit)
