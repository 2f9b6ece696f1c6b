//! What of a configuration can be changed while the gateway runs.

use super::Config;
use crate::fleet::EtcdOptions;
use crate::model::{ModelOptions, PathSettings};

impl Config {
    /// What the model goes by.
    #[must_use]
    pub fn model_options(&self) -> ModelOptions {
        ModelOptions {
            tombstones: self.tombstones,
            ..ModelOptions::default()
        }
    }

    /// This, with what of another one can be changed while the gateway runs, but for credentials.
    #[must_use]
    pub fn running(&self, other: &Self) -> Self {
        let mut running = self.clone();
        running.level = other.level;
        running.tombstones = other.tombstones;
        running.tenants.clone_from(&other.tenants);
        running.limits.per_tenant = other.limits.per_tenant;
        running.limits.timeouts = other.limits.timeouts.clone();
        if let (Some(path), Some(other)) = (&mut running.path, &other.path) {
            // It excludes the other, which ends with a restart.
            let source_check = other.settings.source_check && path.direct.is_none();
            path.settings = PathSettings {
                source_check,
                ..other.settings.clone()
            };
        }
        running
    }

    /// The keys that differ and take a restart.
    #[must_use]
    pub fn takes_restart(&self, other: &Self) -> Vec<&'static str> {
        let running = self.running(other);
        let differs = [
            ("store.path", self.store != other.store),
            (
                "store.etcd",
                lasting(self.etcd.as_ref()) != lasting(other.etcd.as_ref()),
            ),
            ("fleet", self.fleet != other.fleet),
            ("api", self.socket != other.socket),
            ("api.tcp", self.tcp != other.tcp),
            ("metrics", self.metrics != other.metrics),
            ("log.format", self.format != other.format),
            ("connections", running.limits != other.limits),
            ("path", running.path != other.path),
        ];
        differs
            .into_iter()
            .filter_map(|(name, differs)| differs.then_some(name))
            .collect()
    }
}

/// Without what can be renewed.
fn lasting(etcd: Option<&EtcdOptions>) -> Option<EtcdOptions> {
    etcd.map(|etcd| EtcdOptions {
        tls: None,
        user: None,
        ..etcd.clone()
    })
}
