// SPDX-License-Identifier: Apache-2.0
//! Links libtenon: from the folder that TENON_LIB_DIR names, else from where pkg-config finds it.
use std::{env, process::Command};

fn main() {
    println!("cargo:rerun-if-env-changed=TENON_LIB_DIR");
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_PATH");
    let folder = env::var("TENON_LIB_DIR").unwrap_or_else(|_| {
        let found = Command::new("pkg-config").args(["--variable=libdir", "tenon"]).output();
        match found {
            Ok(output) if output.status.success() => String::from_utf8(output.stdout).unwrap().trim().to_string(),
            _ => panic!("pkg-config does not find tenon: install it, or name its folder in TENON_LIB_DIR"),
        }
    });
    println!("cargo:rustc-link-search=native={folder}");
    println!("cargo:rustc-link-lib=dylib=tenon");
    // Of the example and the tests of this package; a program that uses it says where its libraries are.
    println!("cargo:rustc-link-arg=-Wl,-rpath,{folder}");
}
