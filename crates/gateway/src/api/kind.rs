//! What all kinds of objects have in common: put, delete, find, list, watch.

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::{Answers, invalid};
use crate::model::{Model, Outcome, TooSlow, WriteError};
use crate::object::wire::Wire;
use crate::object::{Change, Object, Statement};
use crate::proto;
use crate::store::{Filter, Row, StoreError};

/// Objects of a page if nobody says how many, and at the most.
const PAGE: u32 = 1000;
const MOST_OF_PAGE: u32 = 10_000;
/// Answers that wait for a slow watcher, besides those that the model keeps for it.
const WAITING: usize = 4;

/// A stream's answer.
pub(super) trait Watched<O: Object>: Send + 'static {
    fn with(statements: Vec<Statement<O>>, synced: bool) -> Self;
}

/// An answer to a question for one object.
pub(super) struct Found<M> {
    pub(super) message: Option<M>,
    pub(super) deleted_version: Option<u64>,
}

pub(super) fn refused(error: &WriteError) -> Status {
    Status::unavailable(error.to_string())
}

fn unreadable(error: &StoreError) -> Status {
    tracing::error!(%error, "the store could not be read");
    match error {
        StoreError::Unreadable { .. } | StoreError::Damaged { .. } => Status::unavailable(error.to_string()),
        _ => Status::internal(error.to_string()),
    }
}

fn outcome(outcome: Outcome) -> i32 {
    let outcome = match outcome {
        Outcome::Created => proto::Outcome::Created,
        Outcome::Replaced => proto::Outcome::Replaced,
        Outcome::Deleted => proto::Outcome::Deleted,
        Outcome::Unchanged => proto::Outcome::Unchanged,
        Outcome::Older => proto::Outcome::Older,
        Outcome::Conflict => proto::Outcome::Conflict,
        Outcome::NotFound => proto::Outcome::NotFound,
    };
    outcome.into()
}

fn limit(field: &str, count: usize, most: usize) -> Result<(), Status> {
    if count <= most {
        return Ok(());
    }
    Err(Status::resource_exhausted(format!(
        "{field}: {count} are more than {most} in one request; send several"
    )))
}

/// Reads all objects of a request, or says which one is wrong.
pub(super) fn read<O: Wire>(field: &str, messages: Vec<O::Message>, most: usize) -> Result<Vec<Change>, Status> {
    limit(field, messages.len(), most)?;
    let read = |(at, message)| {
        O::from_wire(message)
            .and_then(|object| object.check_put().map(|()| object))
            .map(|object| O::into_change(Statement::Put(object)))
            .map_err(|error| invalid(format!("{field}[{at}].{error}")))
    };
    messages.into_iter().enumerate().map(read).collect()
}

async fn write(model: &Model, changes: Vec<Change>) -> Result<Vec<i32>, Status> {
    if changes.is_empty() {
        return Ok(Vec::new());
    }
    let outcomes = model.write(changes).await.map_err(|error| refused(&error))?;
    Ok(outcomes.into_iter().map(outcome).collect())
}

pub(super) async fn put<O: Wire>(
    model: &Model,
    field: &str,
    messages: Vec<O::Message>,
    most: usize,
) -> Result<Vec<i32>, Status> {
    write(model, read::<O>(field, messages, most)?).await
}

pub(super) async fn delete<O: Object>(
    model: &Model,
    field: &str,
    keys: Vec<(O::Key, u64)>,
    most: usize,
) -> Result<Vec<i32>, Status> {
    limit(field, keys.len(), most)?;
    let changes = keys
        .into_iter()
        .map(|(key, version)| O::into_change(Statement::Delete(key, version)));
    write(model, changes.collect()).await
}

pub(super) async fn find<O: Wire + Row>(
    model: &Model,
    key: O::Key,
    deleted: bool,
) -> Result<Found<O::Message>, Status> {
    let found = model.readers().ask(move |reader| reader.find::<O>(key)).await;
    match found.map_err(|error| unreadable(&error))? {
        Some(Statement::Put(object)) => Ok(Found {
            message: Some(object.to_wire()),
            deleted_version: None,
        }),
        Some(Statement::Delete(_, version)) if deleted => Ok(Found {
            message: None,
            deleted_version: Some(version),
        }),
        _ => Err(Status::not_found(format!("there is no {} {key}", O::NAME))),
    }
}

pub(super) async fn list<O: Wire + Row>(
    model: &Model,
    filter: Filter,
    page: Option<proto::PageRequest>,
) -> Result<(Vec<O::Message>, Vec<u8>), Status> {
    let proto::PageRequest { size, token } = page.unwrap_or_default();
    if size > MOST_OF_PAGE {
        return Err(invalid(format!("page.size: {size} is above {MOST_OF_PAGE}")));
    }
    let size = if size == 0 { PAGE } else { size }.min(O::AT_ONCE);
    let after = match &*token {
        [] => None,
        token => Some(O::from_token(token).ok_or_else(|| {
            invalid("page.token: is none that this gateway gave; leave it out for the first part".into())
        })?),
    };
    let ask = move |reader: &crate::store::Reader| reader.list::<O>(&filter, after, size as usize);
    let page = model.readers().ask(ask).await.map_err(|error| unreadable(&error))?;
    let next = page.next.map(O::to_token).unwrap_or_default();
    Ok((page.objects.iter().map(Wire::to_wire).collect(), next))
}

/// Everything that is there, if that is wanted, and every change from now on.
pub(super) fn watch<O: Wire + Row, R: Watched<O>>(
    model: &Model,
    start: Option<proto::WatchStart>,
    filter: Filter,
) -> Answers<R> {
    let (answers, stream) = mpsc::channel(WAITING);
    // Before the list, so that no change falls in between. One that is in both is told twice, with the same version.
    let mut watcher = model.watch();
    let readers = std::sync::Arc::clone(model.readers());
    let existing = start.is_some_and(|start| start.existing);
    tokio::spawn(async move {
        let told = async {
            let (mut after, mut listing) = (None, existing);
            while listing {
                let ask = move |reader: &crate::store::Reader| {
                    reader.list::<O>(&filter, after, PAGE.min(O::AT_ONCE) as usize)
                };
                let page = readers.ask(ask).await.map_err(|error| unreadable(&error))?;
                after = page.next;
                let statements: Vec<_> = page.objects.into_iter().map(Statement::Put).collect();
                if answers.send(Ok(R::with(statements, after.is_none()))).await.is_err() {
                    return Ok(());
                }
                listing = after.is_some();
            }
            loop {
                let mut statements = Vec::new();
                let meant = |statement: &&Statement<O>| O::is_meant(&filter, statement.key());
                let next = watcher.next(|changes| {
                    statements = changes.iter().filter_map(O::of).filter(meant).cloned().collect();
                });
                // Whoever is gone is noticed without a change, too.
                let next = tokio::select! {
                    next = next => next,
                    () = answers.closed() => return Ok(()),
                };
                match next {
                    Ok(Some(_)) => {}
                    Ok(None) => return Ok(()),
                    Err(TooSlow) => return Err(Status::out_of_range(TooSlow.to_string())),
                }
                if !statements.is_empty() && answers.send(Ok(R::with(statements, false))).await.is_err() {
                    return Ok(());
                }
            }
        };
        if let Err(status) = told.await {
            // Who is gone does not need to know.
            _ = answers.send(Err(status)).await;
        }
    });
    Box::pin(ReceiverStream::new(stream))
}
