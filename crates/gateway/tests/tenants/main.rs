//! The gateway between real tenants: namespaces whose interfaces are the kernel's own VXLAN, with ping, iperf3 and connections of
//! ours through it. What the kernel can do as well it has to do in the same tests, which shows that the bed is right.

mod bed;
#[path = "../common/mod.rs"]
mod common;
mod kernel;
mod peers;
#[path = "../../../cli/tests/common/process.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared; a part of it is used here")]
mod process;
mod ringside;
mod vtep;

mod answers;
mod crafted;
mod groups;
mod moves;
mod mtu;
mod paths;
mod reach;
mod restart;
mod streams;

use bed::Kind;
use ringside::Ringside;

const KERNEL: Kind = Kind::Kernel;
const NATIVE: Kind = Kind::Ringside(Ringside {
    mode: "native",
    cache: None,
});
/// A cache that has room for nobody else: nearly all goes through the workers.
const SLOW: Kind = Kind::Ringside(Ringside {
    mode: "native",
    cache: Some(1),
});
const GENERIC: Kind = Kind::Ringside(Ringside {
    mode: "generic",
    cache: None,
});

/// The same test for each kind of gateway, in a module of the kind's name.
#[macro_export]
macro_rules! on {
    ($($name:ident = $kind:expr => $($test:ident),+ $(,)?;)+) => {
        $(mod $name {
            $(#[test] fn $test() {
                if ringside_netlab::testing::is_root() {
                    super::$test($kind);
                }
            })+
        })+
    };
}

/// As [`on`], for what the daemon cannot do yet.
#[macro_export]
macro_rules! later {
    ($($name:ident = $kind:expr => $($test:ident),+ $(,)?;)+) => {
        $(mod $name {
            $(#[test] #[ignore = "the daemon has no data path yet"] fn $test() {
                if ringside_netlab::testing::is_root() {
                    super::$test($kind);
                }
            })+
        })+
    };
}
