//! A bulk load of neighbours, in the middle of which the gateway is killed.

use ringside_gateway::proto::neighbor_service_client::NeighborServiceClient;
use ringside_gateway::proto::{LoadNeighborsRequest, LoadNeighborsResponse, Neighbor};
use tokio_stream::StreamExt as _;
use tonic::Streaming;
use tonic::transport::Channel;

use super::{list_all, neighbor};

/// Neighbours of a batch.
pub(crate) const BATCH: u32 = 500;
/// Networks of [`neighbor`].
const NETWORKS: u32 = 10;

/// The same neighbours in each version, without end.
pub(crate) struct Bulk {
    version: u64,
    answers: Streaming<LoadNeighborsResponse>,
    acknowledged: u64,
}

impl Bulk {
    /// Begins it, and waits until some batches are acknowledged: not always after the same number, and the next ones are at any
    /// point of their way.
    pub(crate) async fn begin(channel: Channel, version: u64) -> Self {
        let batches = (0..).map(move |batch: u32| LoadNeighborsRequest {
            neighbors: (batch * BATCH..(batch + 1) * BATCH)
                .map(|number| neighbor(number, version))
                .collect(),
            next_version: false,
        });
        let mut client = NeighborServiceClient::new(channel);
        let answers = client.load_neighbors(tokio_stream::iter(batches)).await;
        let mut bulk = Self {
            version,
            answers: answers.expect("begins").into_inner(),
            acknowledged: 0,
        };
        while bulk.acknowledged < 1 + version % 4 {
            bulk.acknowledged = bulk.answers.next().await.expect("goes on").expect("an answer").batches;
        }
        bulk
    }

    /// When the gateway has been killed: with what has come meanwhile, so many neighbours were acknowledged.
    pub(crate) async fn end(mut self) -> Acknowledged {
        while let Some(Ok(answer)) = self.answers.next().await {
            self.acknowledged = answer.batches;
        }
        Acknowledged {
            version: self.version,
            neighbors: usize::try_from(self.acknowledged * u64::from(BATCH)).expect("few"),
        }
    }
}

/// What has to be there after a kill.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Acknowledged {
    version: u64,
    neighbors: usize,
}

impl Acknowledged {
    /// Asserts that all of it is there, as it was, and no part of a batch. `before`: how many there were before the load. How
    /// many there are.
    pub(crate) fn check(self, there: &[Neighbor], before: usize) -> usize {
        assert!(
            there.len() >= self.neighbors.max(before),
            "{} after {self:?} and {before}",
            there.len()
        );
        assert!(
            there.len().is_multiple_of(BATCH as usize),
            "a part of a batch: {}",
            there.len()
        );
        for (number, found) in (0..).zip(there) {
            let least = if (number as usize) < self.neighbors {
                self.version
            } else {
                1
            };
            assert_eq!(*found, neighbor(number, found.version));
            assert!(
                (least..=self.version).contains(&found.version),
                "{number}: version {}, not {least} to {}",
                found.version,
                self.version
            );
        }
        there.len()
    }
}

/// All of a bulk load that there are, by number.
pub(crate) async fn list(channel: Channel) -> Vec<Neighbor> {
    let mut all = list_all(&mut NeighborServiceClient::new(channel), 10_000).await;
    all.retain(|neighbor| neighbor.address.as_ref().is_some_and(|address| address.vni < NETWORKS));
    all.sort_by_key(|neighbor| neighbor.mac.clone());
    all
}

/// How often a gateway is killed: `RINGSIDE_KILLS`, which `make test-fleet` makes 50.
pub(crate) fn kills(usually: u64) -> u64 {
    std::env::var("RINGSIDE_KILLS").map_or(usually, |kills| kills.parse().expect("a number"))
}
