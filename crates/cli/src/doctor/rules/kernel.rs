//! What the kernel can do, as it was tried.

use ringside_xsk::{KernelCapabilities, KernelFeature, Support};

use super::super::finding::Findings;

pub(super) fn judge(kernel: &KernelCapabilities, findings: &mut Findings<'_>) {
    for (id, feature, why) in [
        (
            "kernel.af-xdp",
            &kernel.af_xdp,
            "it is too old (Linux 4.18 brought them), or was built without CONFIG_XDP_SOCKETS",
        ),
        (
            "kernel.xdp-link",
            &kernel.xdp_link,
            "Ringside attaches its program by a bpf_link, so that nothing is left after a kill: it needs Linux 5.9",
        ),
    ] {
        if *feature == Support::No {
            let what = kernel.features().find(|known| std::ptr::eq(known.support, feature));
            let what = what.map_or(id, |known| known.what);
            findings.error(id, format!("Linux {}: no {what}", kernel.release), why);
        }
    }
    let optional = |feature: &KernelFeature<'_>| !["af_xdp", "xdp_link"].contains(&feature.name);
    let all: Vec<_> = kernel.features().filter(optional).collect();
    let there = kernel
        .features()
        .filter(|feature| *feature.support == Support::Yes)
        .count();
    findings.ok(
        "kernel.features",
        format!(
            "Linux {}: {there} of {} features of AF_XDP, by trying",
            kernel.release,
            kernel.features().count()
        ),
    );
    let missing: Vec<_> = all.iter().filter(|feature| *feature.support == Support::No).collect();
    if !missing.is_empty() {
        let named: Vec<_> = missing
            .iter()
            .map(|feature| format!("{} (Linux {})", feature.what, feature.since))
            .collect();
        findings.note(
            "kernel.missing",
            format!("this kernel does not have: {}", named.join(", ")),
            "Ringside does without where it can, and says so where it cannot; a later kernel has them, unless it was built without",
        );
    }
    let mut unknown: Vec<(&str, Vec<&str>)> = Vec::new();
    for feature in kernel.features() {
        let Some(reason) = feature.support.reason() else {
            continue;
        };
        match unknown.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, features)) => features.push(feature.what),
            None => unknown.push((reason, vec![feature.what])),
        }
    }
    for (reason, features) in unknown {
        findings.note(
            "kernel.unknown",
            format!("could not be tried: {}", features.join(", ")),
            reason,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Check, kernel};
    use super::*;

    fn check(change: impl FnOnce(&mut KernelCapabilities)) -> Check {
        let mut kernel = kernel();
        change(&mut kernel);
        Check::of(|findings| judge(&kernel, findings))
    }

    #[test]
    fn a_kernel_with_everything_is_fine() {
        check(|_| {}).is_fine();
    }

    #[test]
    fn without_what_is_needed_nothing_works() {
        check(|kernel| kernel.af_xdp = Support::No).only("kernel.af-xdp", "error");
        let finding = check(|kernel| kernel.xdp_link = Support::No).only("kernel.xdp-link", "error");
        assert!(finding.what.contains("bpf_link"), "{finding:?}");
    }

    #[test]
    fn what_is_missing_is_a_note_and_what_could_not_be_tried_another() {
        let finding = check(|kernel| {
            kernel.tx_budget = Support::No;
            kernel.multi_buffer = Support::No;
        })
        .only("kernel.missing", "note");
        assert!(
            finding.what.contains("(Linux 6.17)") && finding.what.contains("(Linux 6.6)"),
            "{finding:?}"
        );
        let reason = || Support::Unknown("it needs CAP_SYS_ADMIN".into());
        let finding = check(|kernel| {
            kernel.xdp_link = reason();
            kernel.shared_umem = reason();
        })
        .only("kernel.unknown", "note");
        assert!(finding.what.contains(", one UMEM"), "{finding:?}");
        assert_eq!(finding.why, "it needs CAP_SYS_ADMIN");
    }
}
