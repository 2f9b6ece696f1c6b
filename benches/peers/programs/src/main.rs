//! One AF_XDP operation over one of the crates that Ringside is measured against.
//!
//! ```text
//! peer xsk-rs rxdrop vb
//! peer xdp ping va --seconds 0.4
//! ```
//!
//! Every operation runs until its time is over or SIGINT/SIGTERM arrives, then prints one JSON
//! line. The set-up is that of the kernel's sample program: 4096 frames of 4096 bytes, rings of
//! 2048, bursts of 64, native XDP in copy mode, need_wakeup.

mod frame;
mod operation;
mod options;
mod redirect;
mod with_xdp;
mod with_xsk_rs;

use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Parser;

use crate::options::{Crate, Options};

fn main() -> Result<()> {
    let options = Options::parse();
    let report = match options.library {
        Crate::XskRs => operation::run(&options, patiently(|| with_xsk_rs::XskRs::open(&options))?)?,
        Crate::Xdp => operation::run(&options, patiently(|| with_xdp::Xdp::open(&options))?)?,
    };
    println!("{}", serde_json::to_string(&report)?);
    Ok(())
}

/// Opens again for a while: after a socket was closed its queue stays busy for some 30 ms, because
/// the kernel frees the memory later (`xdp_umem_release_deferred`).
fn patiently<T>(open: impl Fn() -> Result<T>) -> Result<T> {
    let end = Instant::now() + Duration::from_millis(500);
    loop {
        match open() {
            Err(_) if Instant::now() < end => std::thread::sleep(Duration::from_millis(10)),
            result => return result,
        }
    }
}
