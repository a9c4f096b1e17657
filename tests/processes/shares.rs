//! What a client gets beside another that asks for more.

use bellwire::ServerConfig;

use crate::support::child::Process;
use crate::support::guard::until;
use crate::support::house::House;
use crate::support::services::Hold;

#[test]
fn workers_take_turns_by_client_however_many_sessions_one_has() {
    const SESSIONS: u64 = 10;
    const EACH: u64 = 5;
    const OWN: u64 = 1000;
    let house = House::with(ServerConfig { workers: 1, ..ServerConfig::default() });
    let mut own = house.client::<Hold>();
    let session = own.session().unwrap();
    session.submit(&OWN).unwrap();
    assert_eq!(house.arrivals.next(), OWN);
    let mut greedy = Process::start("client", house.run_dir());
    for _ in 0..SESSIONS {
        greedy.tell(&format!("ask {EACH}"));
        assert_eq!(greedy.hear(), "asked");
    }
    until("all of them are queued", || house.stats().accepted == 1 + SESSIONS * EACH);
    for request in 1..=EACH {
        session.submit(&(OWN + request)).unwrap();
    }
    until("so are the others", || house.stats().accepted == 1 + (1 + SESSIONS) * EACH);
    house.release();
    let order: Vec<u64> = (0..(1 + SESSIONS) * EACH).map(|_| house.arrivals.next()).collect();
    let last = order.iter().position(|&request| request == OWN + EACH).unwrap();
    assert!(last <= 2 * EACH as usize, "{order:?}");
}
