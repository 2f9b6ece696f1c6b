//! Whether the kernel's neighbour tables take all hosts of the links.

use std::net::IpAddr;

/// As the kernel calls them.
pub(super) const FAMILIES: [&str; 2] = ["ipv4", "ipv6"];

/// Hosts, and routers to them, of IPv4 and IPv6.
pub(super) type Count = [usize; 2];

/// What the kernel's tables take at the most, of IPv4 and IPv6: `gc_thresh3` of
/// <https://docs.kernel.org/networking/ip-sysctl.html>. Of all interfaces and namespaces together. `usize::MAX` if it does not say.
pub(super) fn limits() -> Count {
    FAMILIES.map(|family| {
        let path = format!("/proc/sys/net/{family}/neigh/default/gc_thresh3");
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.trim().parse().unwrap_or(usize::MAX)
    })
}

pub(super) fn count<'a>(places: impl Iterator<Item = &'a IpAddr>) -> Count {
    let mut count = [0; 2];
    for ip in places {
        count[usize::from(ip.is_ipv6())] += 1;
    }
    count
}

/// What is wrong, and what to do. With more than fit the kernel forgets some, and packets wait for them again and again.
pub(super) fn problem(family: &str, there: usize, takes: usize) -> Option<String> {
    (there > takes).then(|| {
        // For as many again, and what else is there.
        let enough = (2 * there).next_power_of_two();
        format!(
            "{there} hosts and routers of {} are on the links, and the kernel's neighbour table takes {takes}: it forgets some, whose \
             packets wait or are dropped; sysctl -w net.{family}.neigh.default.gc_thresh3={enough} \
             net.{family}.neigh.default.gc_thresh2={}",
            if family == "ipv4" { "IPv4" } else { "IPv6" },
            enough / 2
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_fit_are_told() {
        assert_eq!(problem("ipv4", 1024, 1024), None);
        let v4 = problem("ipv4", 1025, 1024).expect("too many");
        assert!(v4.contains("1025 hosts") && v4.contains("takes 1024"), "{v4}");
        assert!(v4.contains("net.ipv4.neigh.default.gc_thresh3=4096"), "{v4}");
        let v6 = problem("ipv6", 6, 5).expect("too many");
        assert!(v6.contains("of IPv6") && v6.contains("net.ipv6."), "{v6}");
    }

    #[test]
    fn hosts_are_counted_by_family() {
        let ips = ["192.0.2.1", "fd00::1", "192.0.2.2"].map(|ip| ip.parse().unwrap());
        assert_eq!(count(ips.iter()), [2, 1]);
    }

    #[test]
    fn the_kernel_says_what_its_tables_take() {
        assert!(
            limits().iter().all(|takes| (1..usize::MAX).contains(takes)),
            "{:?}",
            limits()
        );
    }
}
