//! What is installed can be used as a user would: by pkg-config, shared and static, and the example runs.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{WARNINGS, built, repository, scratch, succeeded};
use ringside_netlab::testing::is_root;
use ringside_netlab::{Lab, VethConfig};

/// Where a file goes.
struct Installed {
    root: PathBuf,
    prefix: PathBuf,
}

impl Installed {
    /// Installs what this test was built beside into `DESTDIR/PREFIX`.
    fn new(root: &Path, destdir: &str, prefix: &str) -> Self {
        let (destdir, prefix) = (
            if destdir.is_empty() {
                String::new()
            } else {
                root.join(destdir).display().to_string()
            },
            if destdir.is_empty() {
                root.join(prefix)
            } else {
                Path::new("/").join(prefix)
            },
        );
        let done = Self::script(&destdir, &prefix)
            .args(["--from".as_ref(), built().as_os_str()])
            .output();
        succeeded(&done.expect("it starts"));
        let root = PathBuf::from(format!("{destdir}{}", prefix.display()));
        Self { root, prefix }
    }

    fn script(destdir: &str, prefix: &Path) -> Command {
        let mut script = Command::new(repository().join("scripts/install"));
        script
            .env("DESTDIR", destdir)
            .env("PREFIX", prefix)
            .env_remove("LIBDIR")
            .env_remove("INCLUDEDIR");
        script
    }

    fn pkg_config(&self, arguments: &[&str]) -> Vec<String> {
        let output = Command::new("pkg-config")
            .env("PKG_CONFIG_PATH", self.root.join("lib/pkgconfig"))
            .args(arguments)
            .arg("ringside")
            .output();
        let words = succeeded(&output.expect("pkg-config: make setup installs it"));
        words.split_whitespace().map(str::to_owned).collect()
    }

    /// Compiles a file with what pkg-config says.
    fn compile(&self, linking: &[&str], source: &Path, program: &Path, options: &[&str]) {
        let flags = self.pkg_config(options);
        let output = Command::new("g++")
            .args(linking)
            .arg("-o")
            .arg(program)
            .arg(source)
            .args(flags)
            .args(["-lpthread"])
            .output();
        succeeded(&output.expect("a compiler: make setup installs it"));
    }
}

#[test]
fn everything_is_where_it_belongs() {
    let folder = scratch("install");
    let installed = Installed::new(&folder, "destdir", "opt/ringside");
    let lib = installed.root.join("lib");
    let version = env!("CARGO_PKG_VERSION");
    let soname = format!("libringside.so.{}", version.rsplit_once('.').expect("a.b.c").0);
    let real = lib.join(format!("libringside.so.{version}"));
    for link in ["libringside.so", &soname] {
        assert_eq!(
            lib.join(link).canonicalize().expect("a link"),
            real.canonicalize().expect("the library")
        );
    }
    assert!(lib.join("libringside.a").exists());
    for header in ["ringside.h", "hints.h", "nic.h"] {
        assert!(
            installed.root.join("include/ringside").join(header).exists(),
            "{header}"
        );
    }
    let dynamic = Command::new("readelf")
        .arg("-d")
        .arg(&real)
        .output()
        .expect("readelf: binutils");
    assert!(succeeded(&dynamic).contains(&format!("soname: [{soname}]")));
    // Nothing says where it was put for packing.
    assert_eq!(installed.pkg_config(&["--cflags"]), ["-I/opt/ringside/include"]);
    assert_eq!(installed.pkg_config(&["--libs"]), ["-L/opt/ringside/lib", "-lringside"]);
    assert_eq!(installed.pkg_config(&["--modversion"]), [version]);
    let destdir = folder.join("destdir");
    let undone = Installed::script(&destdir.display().to_string(), &installed.prefix)
        .arg("--uninstall")
        .output();
    succeeded(&undone.expect("it starts"));
    let left = Command::new("find")
        .arg(&destdir)
        .args(["-not", "-type", "d"])
        .output()
        .expect("find");
    assert_eq!(succeeded(&left), "");
    let relative = Installed::script("", Path::new("not/absolute"))
        .output()
        .expect("it starts");
    assert!(!relative.status.success());
    std::fs::remove_dir_all(folder).expect("removed");
}

#[test]
fn the_library_is_installed_without_the_programs() {
    let folder = scratch("lib-only");
    let root = folder.join("destdir");
    let from = folder.join("built");
    std::fs::create_dir(&from).expect("a folder");
    for library in ["libringside.so", "libringside.a"] {
        std::fs::copy(built().join(library), from.join(library)).expect("a copy");
    }
    for program in ["ringside", "ringside-gateway"] {
        std::fs::write(from.join(program), "").expect("written");
    }
    let done = Installed::script(&root.display().to_string(), Path::new("/usr"))
        .args(["--lib".as_ref(), "--from".as_ref(), from.as_os_str()])
        .output();
    succeeded(&done.expect("it starts"));
    let usr = root.join("usr");
    assert!(usr.join("lib/libringside.so").exists() && usr.join("include/ringside/hints.h").exists());
    assert!(!usr.join("bin").exists() && !usr.join("share").exists());
    std::fs::remove_dir_all(folder).expect("removed");
}

/// Cargo is run for the library's package alone, which needs neither program.
#[test]
fn no_program_is_built_to_install_the_library() {
    let mut make = Command::new("make");
    make.current_dir(repository()).args(["-n", "install-lib"]);
    for name in ["MAKEFLAGS", "MAKELEVEL", "MFLAGS"] {
        make.env_remove(name);
    }
    let printed = succeeded(&make.output().expect("make"));
    let lines = printed.lines().filter(|line| !line.contains("scripts/setup"));
    let installs: Vec<&str> = lines.collect();
    assert_eq!(installs, ["scripts/install --lib"]);

    // It notes how it is run, and builds nothing.
    let folder = scratch("lib-builds");
    let cargo = folder.join("cargo");
    std::fs::write(&cargo, "#!/bin/sh\necho \"$*\"\n").expect("written");
    std::fs::set_permissions(&cargo, Permissions::from_mode(0o755)).expect("executable");
    let done = Installed::script(&folder.display().to_string(), Path::new("/usr"))
        .arg("--lib")
        .env("CARGO", &cargo)
        .env("CARGO_TARGET_DIR", folder.join("target"))
        .output();
    let printed = String::from_utf8(done.expect("it starts").stdout).expect("UTF-8");
    std::fs::remove_dir_all(folder).expect("removed");
    let words: Vec<&str> = printed.split_whitespace().collect();
    assert!(!words.contains(&"--workspace"), "{printed}");
    let packages = words.windows(2).filter(|pair| ["-p", "--package"].contains(&pair[0]));
    let packages: Vec<&str> = packages.map(|pair| pair[1]).collect();
    assert_eq!(packages, ["ringside-capi"], "{printed}");

    let mut tree = Command::new(env!("CARGO"));
    tree.current_dir(repository())
        .args(["tree", "--locked", "--offline", "--prefix=none", "--edges=normal,build"])
        .args(["-p", "ringside-capi"]);
    let tree = succeeded(&tree.output().expect("cargo"));
    let needed: Vec<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(needed.contains(&"ringside-xsk"), "{tree}");
    for program in ["ringside", "ringside-gateway", "ringside-gateway-core"] {
        assert!(!needed.contains(&program), "{tree}");
    }
}

/// With what the .pc file says that a static program needs, and nothing else.
#[test]
fn it_can_be_linked_statically_and_used_from_cpp() {
    let folder = scratch("static");
    let installed = Installed::new(&folder, "", "usr");
    let source = folder.join("version.cpp");
    std::fs::write(
        &source,
        "#include <ringside/ringside.h>\n#include <cstdio>\n\
         int main() { rsd_port *port; rsd_options options; rsd_options_init(&options, sizeof(options));\n\
         options.interface = \"no-such-thing\"; int code = rsd_port_open(&options, &port);\n\
         std::printf(\"%s %d\\n\", rsd_version(), code); }\n",
    )
    .expect("written");
    let wanted = format!("{} -10\n", env!("CARGO_PKG_VERSION"));
    let shared = folder.join("shared");
    installed.compile(&[], &source, &shared, &["--cflags", "--libs"]);
    let output = Command::new(&shared)
        .env("LD_LIBRARY_PATH", installed.root.join("lib"))
        .output();
    assert_eq!(succeeded(&output.expect("it starts")), wanted);
    // Without the shared one in its way the linker takes the static one.
    std::fs::remove_file(installed.root.join("lib/libringside.so")).expect("there");
    let fixed = folder.join("static");
    for linking in [&[][..], &["-static"]] {
        installed.compile(linking, &source, &fixed, &["--static", "--cflags", "--libs"]);
        assert_eq!(succeeded(&Command::new(&fixed).output().expect("it starts")), wanted);
    }
    let interpreter = Command::new("readelf").arg("-l").arg(&fixed).output();
    let segments = succeeded(&interpreter.expect("readelf: binutils"));
    assert!(!segments.contains("INTERP"), "{segments}");
    std::fs::remove_dir_all(folder).expect("removed");
}

#[test]
fn the_example_receives() {
    let folder = scratch("example");
    let installed = Installed::new(&folder, "", "usr");
    let source = repository().join("examples/receive.c");
    let program = folder.join("receive");
    let output = Command::new("gcc")
        .args(WARNINGS)
        .arg("-o")
        .arg(&program)
        .arg(&source)
        .args(installed.pkg_config(&["--cflags", "--libs"]))
        .arg("-lpthread")
        .output();
    succeeded(&output.expect("gcc: make setup installs it"));
    let usage = Command::new(&program)
        .env("LD_LIBRARY_PATH", installed.root.join("lib"))
        .output();
    assert_eq!(usage.expect("it starts").status.code(), Some(2));
    if is_root() {
        receives(&installed, &program);
    }
    std::fs::remove_dir_all(folder).expect("removed");
}

fn receives(installed: &Installed, program: &Path) {
    let config = VethConfig {
        queues: 2,
        ipv6: false,
        ..VethConfig::tagged("capi-example")
    };
    let lab = Lab::veth(config).expect("test bed");
    let mut child = lab
        .b
        .ns
        .command(program)
        .env("LD_LIBRARY_PATH", installed.root.join("lib"))
        .args([lab.b.interface.name(), "100"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let (ipv4, end) = (lab.b.ipv4, Instant::now() + Duration::from_secs(60));
    // Datagrams until it has enough.
    lab.a.run(|| {
        let socket = std::net::UdpSocket::bind(("0.0.0.0", 0)).expect("a socket");
        while child.try_wait().expect("a child").is_none() {
            assert!(Instant::now() < end, "it does not end");
            _ = socket.send_to(&[7; 100], (ipv4, 9));
            std::thread::sleep(Duration::from_millis(2));
        }
    });
    let output = child.wait_with_output().expect("its output");
    let told = succeeded(&output);
    let report = String::from_utf8_lossy(&output.stderr);
    assert!(report.contains("queue 1: "), "{report}");
    let sum: u64 = told
        .lines()
        .map(|line| {
            let packets = line.split(' ').nth(2).and_then(|number| number.parse::<u64>().ok());
            packets.unwrap_or_else(|| panic!("{told}"))
        })
        .sum();
    assert!(sum >= 100, "{told}");
    assert!(told.contains("from the XDP program to here mean "), "{told}");
    assert_eq!(lab.b.state().expect("there").xdp, None, "an XDP program is left");
}
