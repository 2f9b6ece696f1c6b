//! The connections to etcd, which are made when they are needed, and made anew with other credentials.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use super::client::{Etcd, EtcdOptions};

/// Cheap to clone; all clones are the same.
#[derive(Debug, Clone)]
pub struct Door(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    options: Mutex<EtcdOptions>,
    etcd: tokio::sync::Mutex<Option<Etcd>>,
    renewed: Notify,
}

impl Door {
    /// Nothing is asked yet.
    #[must_use]
    pub fn new(options: EtcdOptions) -> Self {
        Self(Arc::new(Inner {
            options: Mutex::new(options),
            etcd: tokio::sync::Mutex::new(None),
            renewed: Notify::new(),
        }))
    }

    pub(crate) fn options(&self) -> EtcdOptions {
        self.0.options.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From now on with these: what is under way is done anew.
    pub async fn renew(&self, options: EtcdOptions) {
        *self.0.options.lock().unwrap_or_else(PoisonError::into_inner) = options;
        *self.0.etcd.lock().await = None;
        self.0.renewed.notify_one();
    }

    pub(crate) async fn renewed(&self) {
        self.0.renewed.notified().await;
    }

    /// Those that there are, or others.
    pub(crate) async fn etcd(&self) -> Result<Etcd, String> {
        let mut known = self.0.etcd.lock().await;
        if let Some(etcd) = &*known {
            return Ok(etcd.clone());
        }
        let etcd = Etcd::open(&self.options()).await?;
        *known = Some(etcd.clone());
        Ok(etcd)
    }
}
