//! Bulk loads: batches that are on their way to the disk while the next ones come.

use tokio::sync::mpsc;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::{Answers, MOST_ADDRESSES, kind};
use crate::model::{Model, Outcome, Submitted};
use crate::object::{Change, Neighbor, OPEN_VERSION, Statement};
use crate::proto::{LoadNeighborsRequest, LoadNeighborsResponse};

/// Batches of a stream that may wait for the disk: some that are written, and as many that come next.
const UNDER_WAY: usize = 16;

pub(super) fn load(model: Model, mut batches: Streaming<LoadNeighborsRequest>) -> Answers<LoadNeighborsResponse> {
    let (answers, stream) = mpsc::channel(UNDER_WAY);
    let (under_way, mut written) = mpsc::channel::<Result<Submitted, Status>>(UNDER_WAY);
    tokio::spawn(async move {
        let mut number = 0_u64;
        while let Some(batch) = batches.next().await {
            let submitted = match batch {
                Ok(batch) => submit(&model, number, batch).await,
                Err(status) => Err(status),
            };
            let failed = submitted.is_err();
            if under_way.send(submitted).await.is_err() || failed {
                return;
            }
            number += 1;
        }
    });
    tokio::spawn(async move {
        let mut sum = LoadNeighborsResponse::default();
        while let Some(submitted) = written.recv().await {
            let answer = match submitted {
                Ok(submitted) => submitted.outcomes().await.map_err(|error| kind::refused(&error)),
                Err(status) => Err(status),
            };
            let answer = answer.map(|outcomes| {
                add(&mut sum, &outcomes);
                sum
            });
            let failed = answer.is_err();
            if answers.send(answer).await.is_err() || failed {
                return;
            }
        }
    });
    Box::pin(ReceiverStream::new(stream))
}

async fn submit(model: &Model, at: u64, batch: LoadNeighborsRequest) -> Result<Submitted, Status> {
    let LoadNeighborsRequest {
        mut neighbors,
        next_version,
    } = batch;
    if next_version {
        neighbors.iter_mut().for_each(|neighbor| neighbor.version = 0);
    }
    let mut changes = kind::read::<Neighbor>("neighbors", neighbors, MOST_ADDRESSES)
        .map_err(|status| Status::new(status.code(), format!("batch {at}: {}", status.message())))?;
    if next_version {
        for change in &mut changes {
            if let Change::Neighbor(Statement::Put(neighbor)) = change {
                neighbor.version = OPEN_VERSION;
            }
        }
    }
    model.submit(changes).await.map_err(|error| kind::refused(&error))
}

fn add(sum: &mut LoadNeighborsResponse, outcomes: &[Outcome]) {
    sum.batches += 1;
    for outcome in outcomes {
        let place = match outcome {
            Outcome::Created | Outcome::Replaced | Outcome::Deleted => &mut sum.changed,
            Outcome::Unchanged | Outcome::NotFound => &mut sum.unchanged,
            Outcome::Older => &mut sum.older,
            Outcome::Conflict => &mut sum.conflicts,
        };
        *place += 1;
    }
}
