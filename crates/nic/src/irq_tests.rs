use ringside_netlab::testing::skip_unsupported;

use super::*;

const INTERRUPTS: &str = "\
           CPU0       CPU2
 24:          1          0  IO-APIC   5-edge      ACPI:Ged
 38:          0      37869 PCI-MSIX-0000:00:03.0   1-edge      virtio2-input.0
138:          7          9 PCI-MSIX-0000:00:03.0   2-edge      virtio2-output.0
NMI:          3          0   Non-maskable interrupts
";

#[test]
fn counts_belong_to_the_cpus_that_are_named() {
    assert_eq!(handled(INTERRUPTS, 38), BTreeMap::from([(2, 37869)]));
    assert_eq!(handled(INTERRUPTS, 138), BTreeMap::from([(0, 7), (2, 9)]));
    for absent in [3, 8, 99] {
        assert_eq!(handled(INTERRUPTS, absent), BTreeMap::new(), "{absent}");
    }
    assert_eq!(handled("", 38), BTreeMap::new());
}

#[test]
fn an_interrupt_of_this_machine_has_cpus_it_may_go_to() {
    let numbers = fs::read_dir("/proc/irq").into_iter().flatten().flatten();
    let number = numbers
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .max();
    let Some(number) = number else {
        return skip_unsupported("an interrupt in /proc/irq");
    };
    let irq = Irq {
        number,
        name: String::new(),
    };
    assert!(!irq.usage().allowed.is_empty(), "{irq:?}");
}
