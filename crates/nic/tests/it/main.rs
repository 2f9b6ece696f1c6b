//! The integration tests, as one program: each module tests one subject.

mod changes;
mod common;
mod knobs;
mod netdev;
mod qdisc;
mod recover;
mod settings;
mod vxlan;
mod watch;
mod xdp;
