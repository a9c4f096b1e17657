//! Tasks that wait for a provider which is not there yet.

use std::sync::Arc;
use std::time::Duration;

use bellwire::{AsyncClient, CallError};
use tokio::task::JoinSet;

use super::in_each_runtime;
use crate::support::child::Process;
use crate::support::guard::TEST_TIMEOUT;
use crate::support::services::Echo;
use crate::support::test_server::{Dir, client_config};

#[test]
fn tasks_are_served_once_a_provider_listens() {
    in_each_runtime(async || {
        let dir = Dir::new();
        let clients = [(); 2]
            .map(|()| Arc::new(AsyncClient::<Echo>::with_config(&dir.run_dir, client_config())));
        let none = clients[0].wait_available(Duration::from_millis(10)).await.map(|_| ());
        assert!(matches!(none, Err(CallError::Deadline { .. })), "{none:?}");
        let mut tasks = JoinSet::new();
        for client in clients.iter().cycle().take(6) {
            let client = Arc::clone(client);
            tasks.spawn(async move {
                let session = client.wait_available(TEST_TIMEOUT).await.unwrap();
                session.call(&vec![7]).await.unwrap()
            });
        }
        tokio::task::yield_now().await;
        let run_dir = dir.run_dir.clone();
        let starting = tokio::task::spawn_blocking(move || Process::start("server", &run_dir));
        let _server = starting.await.unwrap();
        assert_eq!(tasks.join_all().await, vec![vec![7]; 6]);
    });
}
