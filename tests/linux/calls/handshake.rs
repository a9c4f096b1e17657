use bellwire::RefuseCode;

use crate::support::house::House;
use crate::support::rogue::Rogue;

#[test]
fn a_server_that_stops_refuses_who_is_in_the_handshake() {
    let house = House::open();
    let rogue = Rogue::connect(house.run_dir(), "echo");
    rogue.enter();
    let stats = house.close();
    rogue.is_refused(RefuseCode::Stopping, "stopping");
    assert_eq!(stats.admitted, 0);
}
