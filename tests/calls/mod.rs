//! What a caller observes of its own actions, and of a provider that is slow or stops.

mod abandon;
mod cancel;
mod dynamic;
mod encoded;
mod full;
mod panics;
mod pipeline;
mod post;
mod pressure;
mod queue;
mod schema;
mod stop;
