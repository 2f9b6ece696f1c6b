//! Fetches kernels for guests into the cache, or again where a file in the cache is damaged:
//!
//! ```text
//! cargo run -p ringside-netlab --example fetch_kernel -- linux-image-amd64/trixie-backports
//! ```
//!
//! `scripts/setup` runs it, so that no test has to contact a package server. `RINGSIDE_CACHE` names
//! another cache.

use std::process::ExitCode;

use ringside_netlab::guest::{Cache, Kernel};

fn main() -> ExitCode {
    let cache = match Cache::usual() {
        Ok(cache) => cache,
        Err(error) => {
            eprintln!("fetch_kernel: {error}");
            return ExitCode::FAILURE;
        }
    };
    for name in std::env::args().skip(1) {
        let kernel = name.parse().and_then(|package| Kernel::verified(&package, &cache));
        match kernel {
            Ok(kernel) => println!("{name}: Linux {}", kernel.release),
            Err(error) => {
                eprintln!("fetch_kernel: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}
