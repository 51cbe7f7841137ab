/* SPDX-License-Identifier: Apache-2.0 */
/* A C++ program outside tenon's tree: built with what pkg-config says of the installed library.
 */
#include <iostream>

#include <tenon/tenon.hpp>

int main()
{
    try {
        tenon::domain domain;
        tenon::queue queue(domain);
        auto child = tenon::process::fork(domain, [&] {
            auto tensor = tenon::tensor::of<float>(domain, {2, 3});
            tensor.data<float>()[5] = 42;
            queue.push(std::move(tensor));
        });
        if (queue.pop_tensor()->data<float>()[5] != 42 || child.wait()->exit_code != 0)
            return 1;
    } catch (const tenon::error &caught) {
        std::cerr << caught.what() << '\n';
        return 1;
    }
}
