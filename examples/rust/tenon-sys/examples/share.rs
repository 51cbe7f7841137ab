// SPDX-License-Identifier: Apache-2.0
//! A child process writes into a tensor of its parent, and sends another one back.
use std::ffi::{c_int, c_void, CStr};
use std::ptr::{null, null_mut};
use tenon_sys::*;

struct Shared {
    tensor: *mut tn_tensor,
    queue: *mut tn_queue,
}

fn must(status: c_int) {
    if status < 0 {
        let detail = unsafe { CStr::from_ptr(tn_error_detail()) };
        eprintln!("{}", detail.to_string_lossy());
        std::process::exit(1);
    }
}

unsafe extern "C" fn child(domain: *mut tn_domain, argument: *mut c_void) -> c_int {
    let shared = &*(argument as *const Shared);
    *(tn_tensor_data(shared.tensor) as *mut f32) = 42.0; // the parent's memory, not a copy of it
    let mut answer = null_mut();
    must(tn_tensor_create(domain, TN_FLOAT64, 1, [1i64].as_ptr(), null(), &mut answer));
    *(tn_tensor_data(answer) as *mut f64) = 0.5;
    must(tn_queue_push_tensor(shared.queue, answer, TN_PUSH_MOVE, TN_FOREVER));
    0
}

fn main() {
    unsafe {
        let mut domain = null_mut();
        must(tn_domain_open(null(), null(), 0, &mut domain));
        let mut shared = Shared { tensor: null_mut(), queue: null_mut() };
        let zeroed = options!(tn_tensor_options, flags: TN_TENSOR_ZEROED);
        must(tn_tensor_create(domain, TN_FLOAT32, 2, [2i64, 3].as_ptr(), &zeroed, &mut shared.tensor));
        must(tn_queue_open(domain, null(), &options!(tn_queue_options, capacity: 4), 0, &mut shared.queue));

        let mut process = null_mut();
        must(tn_process_fork(domain, Some(child), &mut shared as *mut Shared as *mut c_void, 0, &mut process));
        let mut answer = null_mut();
        must(tn_queue_pop_tensor(shared.queue, TN_FOREVER, &mut answer));
        must(tn_process_wait(process, TN_FOREVER, null_mut()));
        println!(
            "the child wrote {} and sent {}",
            *(tn_tensor_data(shared.tensor) as *const f32),
            *(tn_tensor_data(answer) as *const f64)
        );

        tn_process_close(process);
        tn_tensor_unref(answer);
        tn_object_close(shared.queue);
        tn_tensor_unref(shared.tensor);
        tn_domain_close(domain);
    }
}
