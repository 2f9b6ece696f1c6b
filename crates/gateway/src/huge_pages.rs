//! Large tables on huge pages.
//!
//! Where the kernel leaves that to programs (`madvise`, as Debian and Ubuntu do), glibc asks for it if `GLIBC_TUNABLES` says so, which
//! it reads before anything of a program runs. So the program begins anew once, as the same process: a service manager sees one start.
//! That is for all that is large, whoever allocates it, and by safe code; a table that asks for its own would be a table alone.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

const TUNABLES: &str = "GLIBC_TUNABLES";
/// Said to the program that begins anew: a program with capabilities of its file's does not see the other one, and would begin for ever.
const AGAIN: &str = "RINGSIDE_BEGUN_ANEW";
/// <https://sourceware.org/glibc/manual/latest/html_node/Memory-Allocation-Tunables.html>, glibc 2.35.
const ASK: &str = "glibc.malloc.hugetlb=1";
/// <https://docs.kernel.org/admin-guide/mm/transhuge.html>
const ENABLED: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// Has large tables of this process be on huge pages. Does not return where that takes a new beginning.
pub(crate) fn ask() {
    let tunables = std::env::var_os(TUNABLES);
    let enabled = std::fs::read_to_string(ENABLED).unwrap_or_default();
    let Ok(program) = std::env::current_exe() else { return };
    if std::env::var_os(AGAIN).is_some() || !takes_a_beginning(tunables.as_deref(), &enabled) {
        return;
    }
    let mut words = std::env::args_os();
    let mut anew = Command::new(program);
    anew.env(TUNABLES, ASK)
        .env(AGAIN, "1")
        .arg0(words.next().unwrap_or_default());
    let error = anew.args(words).exec();
    eprintln!("ringside-gateway: large tables stay on normal pages, for it cannot begin anew: {error}");
}

/// Not where somebody has said something about it, or it has begun anew already; nor where the kernel does it by itself, or never.
fn takes_a_beginning(tunables: Option<&OsStr>, enabled: &str) -> bool {
    tunables.is_none() && enabled.contains("[madvise]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_begins_anew_once_and_where_that_does_something() {
        let enabled = "always [madvise] never\n";
        assert!(takes_a_beginning(None, enabled));
        for tunables in [ASK, ""] {
            assert!(!takes_a_beginning(Some(OsStr::new(tunables)), enabled));
        }
        for enabled in ["[always] madvise never\n", "always madvise [never]\n", ""] {
            assert!(!takes_a_beginning(None, enabled));
        }
    }
}
