//! Fetches the kernel that guests boot into the cache, so that no test has to: `cargo run -p ringside-netlab --example fetch_kernel`.
//!
//! `RINGSIDE_GUEST_KERNEL` chooses the kernel, `RINGSIDE_CACHE` the cache.

use std::process::ExitCode;

use ringside_netlab::guest::Kernel;

fn main() -> ExitCode {
    match Kernel::usual() {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fetch_kernel: {error}");
            ExitCode::FAILURE
        }
    }
}
