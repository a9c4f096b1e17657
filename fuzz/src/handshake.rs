//! Handshakes: the parameters of both ends, then what happens to each message in transit.

use bellwire_core::handshake::{
    Admission, ClientHandshake, ClientStep, ServerHandshake, ServerStep, SessionTerms,
};
use bellwire_core::wire::{Doorbell, Hello, MAX_CONTROL, Message, PROTOCOL, Refuse, Welcome};
use bellwire_core::{Geometry, Instant, Limits, ServiceName};

use crate::script::Script;

/// Runs both state machines of the handshake over a socket that may change or replace messages. Whatever it does, a
/// client that is not admitted gets no session, memory is mapped only on terms that both ends agreed to, and a finished
/// handshake accepts no message. If the socket changes nothing, both ends agree.
pub fn run(input: &[u8]) {
    let script = Script::new(input);
    let (admission, hello) = (admission(&script), hello(&script));
    let mut wire = Wire { script: &script, is_unchanged: true };
    let mut server = ServerHandshake::new(admission);
    let mut client = ClientHandshake::new(hello, Instant::from_nanos(1));

    let (bytes, fds) = wire.pass(&client.hello(), 0);
    let admitted = match server.on_message(&bytes, fds) {
        Ok(ServerStep::Admit(admitted)) => admitted,
        Ok(step) => panic!("{step:?} comes first"),
        Err(rejection) => {
            assert!(!wire.is_unchanged || !fits(&admission, &hello), "{rejection}");
            assert_over(&mut server, &bytes, fds);
            return refused(&mut wire, &mut client, rejection.refuse);
        }
    };
    assert!(fits(&admission, &admitted) && fds == 0);
    let terms = terms(&script);
    let Some(welcome) = server.welcome(terms) else { panic!("an admitted client gets WELCOME") };
    assert!(server.welcome(terms).is_none() && server.ready().is_none());
    assert!(welcome.lane <= admitted.limits.max_lane && welcome.least_lane <= welcome.lane);
    assert!(welcome.doorbell != Doorbell::Eventfd || admitted.rings_eventfd);

    let eventfd = usize::from(welcome.doorbell == Doorbell::Eventfd);
    let (bytes, fds) = wire.pass(&Message::Welcome(welcome), 3 + eventfd);
    let agreed = match client.on_message(&bytes, fds) {
        Ok(ClientStep::Map(agreed)) => agreed,
        Ok(ClientStep::Done(_)) => panic!("the handshake ended before the memory was mapped"),
        Err(error) => {
            assert!(!wire.is_unchanged, "{error}");
            assert!(client.on_message(&bytes, fds).is_err() && client.join().is_none());
            return;
        }
    };
    assert_agreed(&agreed, &hello, fds);
    let join = client.join().expect("it mapped the memory");
    assert!(client.join().is_none());

    let eventfd = usize::from(admitted.doorbell == Doorbell::Eventfd);
    let (bytes, fds) = wire.pass(&join, 2 + eventfd);
    match server.on_message(&bytes, fds) {
        Ok(ServerStep::Map(of, on)) => {
            assert_eq!((of, on, fds), (admitted, welcome, 2 + eventfd));
        }
        Ok(step) => panic!("{step:?} comes once"),
        Err(rejection) => {
            assert!(!wire.is_unchanged, "{rejection}");
            assert_over(&mut server, &bytes, fds);
            return refused(&mut wire, &mut client, rejection.refuse);
        }
    }
    let ready = server.ready().expect("it mapped the memory");
    let (bytes, fds) = wire.pass(&ready, 0);
    match client.on_message(&bytes, fds) {
        Ok(ClientStep::Done(on)) => assert_eq!((on, fds), (agreed, 0)),
        Ok(step) => panic!("{step:?} comes once"),
        Err(error) => assert!(!wire.is_unchanged, "{error}"),
    }
    assert!(client.on_message(&bytes, fds).is_err(), "a finished handshake accepts no message");
    assert_over(&mut server, &bytes, fds);
    assert!(!wire.is_unchanged || agreed == welcome);
}

/// The socket, which may change each message.
struct Wire<'a> {
    script: &'a Script<'a>,
    /// It has passed on all messages so far unchanged.
    is_unchanged: bool,
}

impl Wire<'_> {
    fn pass(&mut self, message: &Message, fds: usize) -> (Vec<u8>, usize) {
        let mut bytes = [0; MAX_CONTROL];
        let len = message.encode(fds as u16, &mut bytes);
        let original = bytes[..len].to_vec();
        let (passed, passed_fds) = match self.script.byte() % 16 {
            // Changes some bits of one byte.
            0..=5 => {
                let mut changed = original.clone();
                let at = usize::from(self.script.u16()) % len;
                changed[at] ^= self.script.byte();
                (changed, fds)
            }
            // Replaces the message.
            6 => (self.script.sized().to_vec(), usize::from(self.script.byte() % 8)),
            7 => (original.clone(), usize::from(self.script.byte() % 8)),
            8 => (original[..usize::from(self.script.u16()) % len].to_vec(), fds),
            _ => (original.clone(), fds),
        };
        self.is_unchanged &= passed == original && passed_fds == fds;
        (passed, passed_fds)
    }
}

fn refused(wire: &mut Wire<'_>, client: &mut ClientHandshake, refuse: Refuse) {
    let (bytes, fds) = wire.pass(&Message::Refuse(refuse), 0);
    match client.on_message(&bytes, fds) {
        // The socket may have replaced the refusal by any message.
        Ok(_) => assert!(!wire.is_unchanged),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn assert_over(server: &mut ServerHandshake, bytes: &[u8], fds: usize) {
    assert!(server.welcome(DEFAULT_TERMS).is_none() && server.ready().is_none());
    assert!(server.on_message(bytes, fds).is_err(), "a finished handshake accepts no message");
}

fn assert_agreed(welcome: &Welcome, hello: &Hello, fds: usize) {
    let eventfd = welcome.doorbell == Doorbell::Eventfd;
    assert_eq!(fds, 3 + usize::from(eventfd));
    assert!(hello.rings_eventfd || !eventfd);
    assert!((hello.versions.min..=hello.versions.max).contains(&welcome.version));
    assert_eq!(welcome.features & !hello.features, 0);
    for (lane, peer_limits) in [(welcome.lane, &hello.limits), (hello.lane, &welcome.limits)] {
        assert!(lane <= peer_limits.max_lane);
        assert!(lane.size() + 4096 <= peer_limits.max_shared_bytes_per_session);
    }
    // That the client's lane fits its own limits is checked by the server, which got another HELLO if the bytes were changed.
    assert!(welcome.lane.size() + 4096 <= welcome.limits.max_shared_bytes_per_session);
    assert!(welcome.least_lane <= welcome.lane);
}

fn fits(admission: &Admission, hello: &Hello) -> bool {
    let limits = &admission.limits;
    hello.service == admission.service
        && hello.service_version == admission.service_version
        && admission.token.is_none_or(|token| token == hello.token)
        && (admission.schema == hello.schema || admission.schema == 0 || hello.schema == 0)
        && hello.lane <= limits.max_lane
        && [limits, &hello.limits]
            .iter()
            .all(|limits| hello.lane.size() + 4096 <= limits.max_shared_bytes_per_session)
}

const NAME: ServiceName = ServiceName::constant("echo");
const DEFAULT_TERMS: SessionTerms = SessionTerms {
    session: 1,
    lane: Geometry::DEFAULT,
    least_lane: Geometry::DEFAULT,
    doorbell: Doorbell::Futex,
    max_batch: 1 << 16,
};

fn admission(script: &Script<'_>) -> Admission {
    let [service_version, token, ..] = script.array::<4>();
    Admission {
        service: NAME,
        service_version: u32::from(service_version % 4),
        token: (token % 4 != 0).then_some([token % 4; 16]),
        limits: limits(script),
        features: 1,
        schema: u64::from(script.byte() % 3),
    }
}

fn hello(script: &Script<'_>) -> Hello {
    let [service_version, token, doorbell, eventfd] = script.array();
    let lane = size(script);
    Hello {
        versions: PROTOCOL,
        features: script.byte().into(),
        service: NAME,
        service_version: u32::from(service_version % 4),
        token: [token % 4; 16],
        lane,
        least_lane: size(script).min(lane),
        limits: limits(script),
        doorbell: self::doorbell(doorbell),
        rings_eventfd: eventfd & 1 == 1,
        schema: u64::from(script.byte() % 3),
    }
}

fn terms(script: &Script<'_>) -> SessionTerms {
    SessionTerms {
        session: script.u64(),
        lane: size(script),
        least_lane: size(script),
        doorbell: doorbell(script.byte()),
        max_batch: 1 << 16,
    }
}

fn limits(script: &Script<'_>) -> Limits {
    let shared = Limits::MIN_SHARED << (script.byte() % 16);
    Limits {
        max_message: script.u16().into(),
        max_lane: size(script),
        max_shared_bytes_per_session: shared + u64::from(script.byte()),
    }
}

fn size(script: &Script<'_>) -> Geometry {
    Geometry::new(1 << (12 + script.byte() % 19)).expect("a lane's size")
}

fn doorbell(code: u8) -> Doorbell {
    Doorbell::parse(u32::from(code % 3) + 1).expect("one of three")
}
