//! Gives the shared library its soname. While the version is 0.x, each minor version may change the ABI.

fn main() {
    let part = |name: &str| std::env::var(format!("CARGO_PKG_VERSION_{name}")).expect("set by cargo");
    println!(
        "cargo:rustc-cdylib-link-arg=-Wl,-soname,libringside.so.{}.{}",
        part("MAJOR"),
        part("MINOR")
    );
    println!("cargo:rerun-if-changed=build.rs");
}
