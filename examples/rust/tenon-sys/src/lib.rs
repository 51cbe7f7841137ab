// SPDX-License-Identifier: Apache-2.0
//! The C API of tenon, as it is: functions, structs and constants of `<tenon/tenon.h>`, whose
//! comments are the documentation. `bindings.rs` is written by `dev/rust-bindings`.
#![allow(non_camel_case_types, non_upper_case_globals)]

mod bindings;
pub use bindings::*;

// What bindgen does not translate: two objects, and macros of 64 bits.

/// Try once, and do not wait.
pub const TN_NOW: tn_deadline = tn_deadline { ns: 0 };
/// Wait until it happens.
pub const TN_FOREVER: tn_deadline = tn_deadline { ns: u64::MAX };
/// Durations, in nanoseconds.
pub const TN_MICROSECOND: u64 = 1_000;
pub const TN_MILLISECOND: u64 = 1_000_000;
pub const TN_SECOND: u64 = 1_000_000_000;
/// A lifetime that does not end.
pub const TN_NO_EXPIRY: u64 = u64::MAX;

/// A struct that begins with `struct_size`: `options!(tn_queue_options, capacity: 4)`.
/// Fields that are not named are zero, which is the default of each.
#[macro_export]
macro_rules! options {
    ($name:ident $(, $field:ident : $value:expr)* $(,)?) => {
        $crate::$name {
            struct_size: std::mem::size_of::<$crate::$name>() as _,
            $($field: $value,)*
            ..unsafe { std::mem::zeroed() }
        }
    };
}
