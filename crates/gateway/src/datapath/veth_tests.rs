use ringside_bpf::{Redirected, Redirector, XdpMode, attach_pass};
use ringside_netlab::testing::is_root;
use ringside_netlab::{Lab, Namespace, VethConfig};

use super::*;

#[test]
fn names_the_command_for_each_place_of_the_other_end() {
    if !is_root() {
        return;
    }
    let ns = Namespace::create("veth-own").expect("namespace");
    let other = Namespace::create("veth-other").expect("namespace");
    let generic = Redirector::load(Redirected::All).expect("loaded");
    for (far, place) in [
        (&ns, String::new()),
        (&other, format!("ip netns exec {} ", other.name())),
    ] {
        let lab = Lab::join(&ns, far, VethConfig::named("near", "far")).expect("veth");
        let near = &lab.a.interface;
        let link = lab.b.run(|| generic.attach(lab.b.interface.index(), XdpMode::Generic));
        let link = link.expect("attached");
        let problem_of = || lab.a.run(|| problem(near)).expect("no program in native mode");
        let remove = format!("{place}ip link set dev far xdpgeneric off");
        let ending = format!("; {remove}, then {place}{COMMAND} far");
        assert!(problem_of().ends_with(&ending), "{}", problem_of());
        drop(link);
        let problem = problem_of();
        assert!(
            problem.ends_with(&format!("; {place}ringside-gateway attach-pass far")),
            "{problem}"
        );
        lab.b.run(|| attach_pass(lab.b.interface.index())).expect("attached");
        assert_eq!(lab.a.run(|| super::problem(near)), None);
        lab.delete_link().expect("deleted");
    }
}
