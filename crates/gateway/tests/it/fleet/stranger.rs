//! Who has no certificate, and says that it is a member.

use std::process::Stdio;
use std::time::Duration;

use ringside_netlab::wait_until;

use super::cluster::{Cluster, PATIENCE};

impl Cluster {
    /// Starts another etcd under a member's name, on that one's host, which trusts who the members trust and has nothing to show.
    /// The others do not tell it anything, and say why.
    pub(crate) fn refuse_a_stranger(&self) {
        let [member, other, ..] = &self.members[..] else {
            panic!("there are three");
        };
        let path = |name: &str| member.folder.join(name).display().to_string();
        let said = || other.log().matches("client didn't provide a certificate").count();
        let before = said();
        let (client, peer) = ("http://127.0.0.1:23790", "http://127.0.0.1:23800");
        let mut command = member.host.command("timeout");
        command
            .args([&PATIENCE.as_secs().to_string(), "etcd", "--logger", "zap"])
            .args(["--name", &member.name(), "--data-dir", &path("stranger")])
            .args([
                "--initial-cluster",
                member.peers(),
                "--initial-cluster-state",
                "existing",
            ])
            .args(["--initial-advertise-peer-urls", &member.peer_url()])
            .args(["--listen-client-urls", client, "--advertise-client-urls", client])
            .args(["--listen-peer-urls", peer])
            .args(["--peer-trusted-ca-file", &path("ca.pem")])
            .stdin(Stdio::null());
        let output = command.output().unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "it is a member: {complaint}");
        // Before TLS 1.3 had an alert of its own for it in Go (RFC 8446, section 6.2).
        let alerts = ["tls: bad certificate", "tls: certificate required"];
        assert!(alerts.iter().any(|alert| complaint.contains(alert)), "{complaint}");
        assert!(
            wait_until(Duration::from_secs(10), || said() > before),
            "{}",
            other.log()
        );
    }
}
