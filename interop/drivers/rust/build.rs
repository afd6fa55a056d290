use std::{env, process::Command};

/// Passes the version of the compiler to the driver, as RUSTC_VERSION.
fn main() {
    let rustc = env::var("RUSTC").expect("cargo sets RUSTC");
    let output = Command::new(rustc).arg("--version").output().expect("run rustc");
    let text = String::from_utf8(output.stdout).expect("the version is text");
    let version = text.split(' ').nth(1).expect("rustc VERSION");
    println!("cargo::rustc-env=RUSTC_VERSION={version}");
}
