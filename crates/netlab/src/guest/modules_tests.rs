use super::*;

#[test]
fn names_of_modules_are_told_from_files() {
    assert_eq!(module_name("i2c-algo-bit.ko.xz").as_deref(), Some("i2c_algo_bit"));
    assert_eq!(module_name("8021q.ko").as_deref(), Some("8021q"));
    assert_eq!(module_name("veth.ko.zst").as_deref(), Some("veth"));
    assert_eq!(module_name("modules.order"), None);
    assert_eq!(module_name("veth.ko.xz.part"), None);
}

/// What a module's file begins with, as far as it is read: sections for its own words and for the sections' names.
fn module(words: &[&str]) -> Vec<u8> {
    const NAMES: &[u8] = b"\0.modinfo\0.shstrtab\0";
    const HEADER: u64 = 64;
    let words: Vec<u8> = words.iter().flat_map(|word| word.bytes().chain([0])).collect();
    let (length, names) = (words.len() as u64, NAMES.len() as u64);
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    let short = |file: &mut Vec<u8>, values: &[u16]| values.iter().for_each(|value| file.extend(value.to_le_bytes()));
    let long = |file: &mut Vec<u8>, values: &[u64]| values.iter().for_each(|value| file.extend(value.to_le_bytes()));
    // To be linked, for x86_64, version 1.
    short(&mut file, &[1, 62, 1, 0]);
    long(&mut file, &[0, 0, HEADER + length + names]);
    short(&mut file, &[0, 0, 64, 0, 0, 64, 3, 2]);
    file.extend(words);
    file.extend(NAMES);
    let section = |name: u64, kind: u64, at: u64, length: u64| [name | kind << 32, 0, 0, at, length, 0, 1, 0];
    long(&mut file, &[0; 8]);
    long(&mut file, &section(1, 1, HEADER, length));
    long(&mut file, &section(10, 3, HEADER + length, names));
    file
}

/// A kernel with these files, until it is dropped.
struct Fixture(Kernel);

impl Fixture {
    fn new(files: &[(&str, Vec<u8>)]) -> Self {
        let mut kernel = Kernel::for_tests("/nowhere");
        kernel.modules = std::env::temp_dir().join(crate::name::unique("modules").unwrap());
        for (path, content) in files {
            let path = kernel.modules.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        Self(kernel)
    }

    fn drivers(&self, modalias: &str, first: &[&str]) -> Option<Vec<String>> {
        Modules::of(&self.0)
            .unwrap()
            .drivers(modalias, first.iter().copied())
            .unwrap()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0.modules);
    }
}

const PHYSICAL: &str = "pci:v00008086d000010C9sv00001AF4sd00001100bc02sc00i00";
const VIRTUAL: &str = "pci:v00008086d000010CAsv00001AF4sd00001100bc02sc00i00";
const VIRTIO: &str = "pci:v00001AF4d00001041sv00001AF4sd00001100bc02sc00i00";
const NOBODYS: &str = "pci:v0000FFFFd00000001sv00000000sd00000000bc02sc00i00";

fn names(names: &[&str]) -> Option<Vec<String>> {
    Some(names.iter().map(|name| (*name).to_owned()).collect())
}

#[test]
fn drivers_are_found_by_what_modules_say_of_themselves() {
    let igb = module(&[
        "license=GPL",
        "alias=pci:v00008086d0000150Asv*sd*bc*sc*i*",
        "alias=pci:v00008086d000010C9sv*sd*bc*sc*i*",
    ]);
    let igbvf = module(&["alias=pci:v00008086d000010CAsv*sd*bc*sc*i*", "depends="]);
    let virtio = module(&["alias=pci:v00001AF4d*sv*sd*bc*sc*i*"]);
    // One that is none of the network's folders is looked at where it is named.
    let other = module(&["alias=pci:v0000FFFFd00000001sv*sd*bc*sc*i*"]);
    let files = [
        ("kernel/drivers/net/ethernet/intel/igb/igb.ko", igb),
        ("kernel/drivers/net/ethernet/intel/igbvf/igbvf.ko", igbvf),
        (
            "kernel/drivers/net/virtio_net.ko",
            module(&["alias=virtio:d00000001v*"]),
        ),
        ("kernel/drivers/virtio/virtio_pci.ko", virtio),
        ("kernel/drivers/staging/an-other.ko", other),
    ];
    let kernel = Fixture::new(&files);
    assert_eq!(kernel.drivers(PHYSICAL, &[]), names(&["igb"]));
    assert_eq!(kernel.drivers(VIRTUAL, &["igb", "vfio-pci"]), names(&["igbvf"]));
    assert_eq!(
        kernel.drivers(VIRTIO, &["virtio-pci"]),
        names(&["virtio_pci", "virtio_net"])
    );
    // Where it is built in nothing says so.
    assert_eq!(Fixture::new(&files[..3]).drivers(VIRTIO, &[]), names(&["virtio_net"]));
    assert_eq!(kernel.drivers(NOBODYS, &[]), None);
    assert_eq!(kernel.drivers(NOBODYS, &["an-other"]), names(&["an_other"]));
    // A driver that is no module, and a list of all, which is believed.
    let mut built_in = files.to_vec();
    built_in.push(("modules.builtin.modinfo", format!("igc.alias={NOBODYS}\0").into_bytes()));
    assert_eq!(Fixture::new(&built_in).drivers(NOBODYS, &[]), names(&[]));
    let listed = [
        ("kernel/x.ko", Vec::new()),
        ("modules.alias", b"alias pci:v0000FFFFd*sv*sd*bc*sc*i* x\n".to_vec()),
    ];
    let listed = Fixture::new(&listed);
    assert_eq!(listed.drivers(NOBODYS, &[]), names(&["x"]));
    assert_eq!(listed.drivers(PHYSICAL, &[]), None);
}

/// The kernel that guests have: as its packages are, without a list of aliases.
#[test]
fn drivers_are_found_in_a_real_kernel() {
    let real = Kernel::usual().unwrap();
    let modules = Modules::of(&real).unwrap();
    // Not all 500 of them, which a build for tests takes a minute for.
    let some = ["igb", "igbvf", "e1000e", "virtio_net", "virtio_pci"];
    let files: Vec<(String, Vec<u8>)> = some
        .into_iter()
        .filter_map(|name| modules.files.get(name))
        .map(|path| {
            let within = path.strip_prefix(&real.modules).unwrap().to_str().unwrap();
            (within.to_owned(), fs::read(path).unwrap())
        })
        .collect();
    let files: Vec<(&str, Vec<u8>)> = files
        .iter()
        .map(|(path, content)| (path.as_str(), content.clone()))
        .collect();
    let kernel = Fixture::new(&files);
    assert_eq!(kernel.drivers(PHYSICAL, &[]), names(&["igb"]));
    assert_eq!(kernel.drivers(VIRTUAL, &[]), names(&["igbvf"]));
    // Ubuntu's kernel has it built in.
    let is_module = modules.files.contains_key("virtio_net");
    assert!(
        kernel
            .drivers(VIRTIO, &[])
            .is_some_and(|all| all.contains(&"virtio_net".to_owned()) == is_module)
    );
    assert_eq!(kernel.drivers(NOBODYS, &[]), None);
    // With all that it needs, of the whole kernel.
    let found = modules.drivers(PHYSICAL, ["igb"]).unwrap();
    assert_eq!(found, names(&["igb"]));
    let order = modules.in_order(["igb"], &[]).unwrap();
    assert_eq!(order.last().unwrap().name, "igb");
    assert!(order.iter().any(|module| module.name == "i2c_algo_bit"), "{order:?}");
    real.has_modules(&["igb".to_owned()]).unwrap();
    let error = real.has_modules(&["no-such".to_owned()]).unwrap_err().to_string();
    assert!(error.contains("no_such") && error.contains(&real.release), "{error}");
}
