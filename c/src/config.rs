//! Configurations and contracts.

use std::ffi::c_char;
use std::time::Duration;

use bellwire::{
    Admission, Backpressure, ClientConfig, Contract, Doorbell, Geometry, Group, LaneConfig, RunDir,
    ServerConfig, SpinPolicy, Token, User,
};

use crate::bytes::{array, text};
use crate::error::Failure;
use crate::extensible::{self, Extensible};

/// A request may run twice: a call whose provider went away is sent again, to its successor.
pub const BW_CONTRACT_IDEMPOTENT: u32 = 1;

/// The provider wakes this end by a futex: the fastest for a thread that blocks in a call.
pub const BW_DOORBELL_FUTEX: u32 = 1;
/// By an eventfd: for event loops, with bw_client_fd. One descriptor more.
pub const BW_DOORBELL_EVENTFD: u32 = 2;
/// By a byte on the control socket: for event loops where descriptors are scarce.
pub const BW_DOORBELL_SOCKET: u32 = 3;

/// A full lane: calls wait, bw_client_submit fails; the lane grows when it is often full.
pub const BW_BACKPRESSURE_ADAPT: u32 = 0;
/// Waits for room; the lane keeps its size.
pub const BW_BACKPRESSURE_WAIT: u32 = 1;
/// Fails with BW_E_WOULD_BLOCK.
pub const BW_BACKPRESSURE_FAIL: u32 = 2;
/// The lane doubles each time it is full, up to its limits.
pub const BW_BACKPRESSURE_GROW: u32 = 3;

/// Admits the server's own user and root.
pub const BW_ADMIT_SAME_USER: u32 = 0;
/// And the members of a group.
pub const BW_ADMIT_GROUP: u32 = 1;
/// And the users in a list.
pub const BW_ADMIT_USERS: u32 = 2;
/// And any other user.
pub const BW_ADMIT_ANY: u32 = 3;

/// What both ends of a service agree on, besides the bytes of its messages.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct bw_contract {
    /// sizeof(bw_contract), set by the caller: BW_CONTRACT does.
    pub size: usize,
    /// The service's name: 1 to 63 of a-z, 0-9 and -, beginning with a letter.
    pub service: *const c_char,
    /// The version of its types: from 1; both ends have the same, or the client is refused.
    pub version: u32,
    /// 0 or BW_CONTRACT_IDEMPOTENT.
    pub flags: u32,
    /// A fingerprint of its types, 0 for none: two that differ meet BW_E_INCOMPATIBLE. bw_schema makes one of a text.
    pub schema: u64,
}

/// The configuration of a client. Fill it with bw_client_config_init, then change what should differ.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct bw_client_config {
    /// sizeof(bw_client_config), set by bw_client_config_init.
    pub size: usize,
    /// How long a call waits for its answer where it has no time of its own. Default: 5 s.
    pub timeout_ns: u64,
    /// How long opening a session may take. Default: 2 s.
    pub connect_timeout_ns: u64,
    /// The longest spin before a thread sleeps, at most 1 ms; 0 never spins. Default: 60 µs, less where it does not pay.
    pub spin_max_ns: u64,
    /// The lane's size in bytes when idle: a power of two from 4096. Default: 16384.
    pub lane_size: u64,
    /// One of BW_DOORBELL_…. Default: a futex.
    pub doorbell: u32,
    /// One of BW_BACKPRESSURE_…. Default: BW_BACKPRESSURE_ADAPT.
    pub backpressure: u32,
    /// The deployment's token, 16 bytes, or NULL for none. Default: that of BELLWIRE_TOKEN.
    pub token: *const u8,
    /// Users besides this one and root whose providers are trusted. Default: none.
    pub trusted: *const u32,
    /// How many they are.
    pub trusted_len: usize,
}

/// The configuration of a server. Fill it with bw_server_config_init, then change what should differ.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct bw_server_config {
    /// sizeof(bw_server_config), set by bw_server_config_init.
    pub size: usize,
    /// Threads that run handlers. Default: 0, the server's own thread: fastest, if no handler blocks.
    pub workers: usize,
    /// The most sessions at once. Default: 16384.
    pub max_sessions: usize,
    /// The most memory that all clients together may make this process hold, in bytes; 0: a quarter of what is available.
    pub max_memory: u64,
    /// How long bw_server_stop waits for handlers and for answers to be taken. Default: 1 s.
    pub drain_timeout_ns: u64,
    /// The lane's size in bytes when idle: a power of two from 4096. Default: 16384.
    pub lane_size: u64,
    /// One of BW_ADMIT_…. Default: BW_ADMIT_SAME_USER.
    pub admit: u32,
    /// The group, with BW_ADMIT_GROUP.
    pub group: u32,
    /// The users, with BW_ADMIT_USERS.
    pub users: *const u32,
    /// How many they are.
    pub users_len: usize,
    /// The deployment's token, 16 bytes, or NULL to admit clients with any. Default: that of BELLWIRE_TOKEN.
    pub token: *const u8,
    /// The longest that the server's thread spins before it sleeps, at most 1 ms; 0 never spins. Default: as of clients.
    pub spin_max_ns: u64,
}

/// The token of BELLWIRE_TOKEN, where `bw_…_config_init` points to it.
static TOKEN: std::sync::OnceLock<Option<[u8; 16]>> = std::sync::OnceLock::new();

fn own_token() -> *const u8 {
    let token = TOKEN.get_or_init(|| match Token::from_environment() {
        Ok(token) => token.map(Token::to_bytes),
        // A typing error must not make a server admit everybody.
        Err(_) => Some([0xff; 16]),
    });
    token.as_ref().map_or(std::ptr::null(), |bytes| bytes.as_ptr())
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Fills `config` with the defaults. Does nothing to NULL.
///
/// # Safety
/// NULL, or a struct that may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_client_config_init(config: *mut bw_client_config) {
    let default = ClientConfig::default();
    let filled = bw_client_config {
        size: bw_client_config::FIRST,
        timeout_ns: nanos(default.timeout),
        connect_timeout_ns: nanos(default.connect_timeout),
        spin_max_ns: nanos(default.spin.max),
        lane_size: default.lane.size.size(),
        doorbell: BW_DOORBELL_FUTEX,
        backpressure: BW_BACKPRESSURE_ADAPT,
        token: own_token(),
        trusted: std::ptr::null(),
        trusted_len: 0,
    };
    // SAFETY: as the caller promises.
    unsafe { initialize(config, &filled) }
}

/// Fills `config` with the defaults. Does nothing to NULL.
///
/// # Safety
/// NULL, or a struct that may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_server_config_init(config: *mut bw_server_config) {
    let default = ServerConfig::default();
    let filled = bw_server_config {
        size: bw_server_config::FIRST,
        workers: default.workers,
        max_sessions: default.max_sessions,
        max_memory: 0,
        drain_timeout_ns: nanos(default.drain_timeout),
        lane_size: default.lane.size.size(),
        admit: BW_ADMIT_SAME_USER,
        group: 0,
        users: std::ptr::null(),
        users_len: 0,
        token: own_token(),
        spin_max_ns: nanos(default.spin.max),
    };
    // SAFETY: as the caller promises.
    unsafe { initialize(config, &filled) }
}

/// Returns the fingerprint of a description of a service's types, the same in every language: 64-bit FNV-1a. 0 for NULL.
///
/// # Safety
/// NULL, or a terminated text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_schema(description: *const c_char) -> u64 {
    // SAFETY: as the caller promises.
    unsafe { text(description) }.ok().flatten().map_or(0, bellwire::schema)
}

/// Returns the run dir of `path`, or that of the environment where it is null.
///
/// # Safety
/// As [`text`].
pub(crate) unsafe fn run_dir(path: *const c_char) -> Result<RunDir, Failure> {
    // SAFETY: as the caller promises.
    let path = unsafe { text(path) }?;
    Ok(path.map_or_else(RunDir::from_environment, RunDir::new))
}

/// Fills a struct whose size C does not pass: a program of an older header has room for no more than the first version.
///
/// # Safety
/// `config` is null, or a struct that may be written.
unsafe fn initialize<T: Extensible>(config: *mut T, filled: &T) {
    if !config.is_null() {
        // SAFETY: it begins with its size.
        unsafe { config.cast::<usize>().write(T::FIRST) };
        // SAFETY: it has the fields of the first version.
        unsafe { extensible::write(config, T::FIRST, filled) };
    }
}

fn lane(size: u64, lane: LaneConfig) -> Result<LaneConfig, Failure> {
    let size = Geometry::new(size).map_err(|error| Failure::invalid(error.to_string()))?;
    Ok(lane.size(size))
}

/// # Safety
/// As of [`bw_client_config::token`].
unsafe fn token(bytes: *const u8) -> Result<Option<Token>, Failure> {
    if bytes.is_null() {
        return Ok(None);
    }
    // SAFETY: 16 bytes, as the caller promises.
    let bytes = unsafe { bytes.cast::<[u8; 16]>().read() };
    Token::new(bytes)
        .map(Some)
        .ok_or_else(|| Failure::invalid("a token of zeroes is none: pass NULL"))
}

/// # Safety
/// `ids` is null or points to `len` numbers.
unsafe fn users(ids: *const u32, len: usize) -> Result<Vec<User>, Failure> {
    // SAFETY: as the caller promises.
    let ids = unsafe { array(ids, len) }?;
    Ok(ids.iter().copied().map(User::from).collect())
}

/// # Safety
/// `contract` is null or valid, with a terminated name.
pub(crate) unsafe fn contract(contract: *const bw_contract) -> Result<Contract, Failure> {
    // SAFETY: as the caller promises.
    let contract = unsafe { extensible::read(contract) }?;
    // SAFETY: as the caller promises.
    let service = unsafe { text(contract.service) }?
        .ok_or_else(|| Failure::invalid("a service has no name"))?;
    let service =
        service.parse().map_err(|error| Failure::invalid(format!("{service:?}: {error}")))?;
    let bw_contract { version, flags, schema, .. } = contract;
    if version == u32::MAX || flags & !BW_CONTRACT_IDEMPOTENT != 0 {
        return Err(Failure::invalid("a contract's version is 2^32 - 1, or it has unknown flags"));
    }
    let contract = Contract::new(service).version(version).schema(schema);
    Ok(contract.idempotent(flags & BW_CONTRACT_IDEMPOTENT != 0))
}

/// Returns the run dir and the configuration of a client.
///
/// # Safety
/// As of [`run_dir`] and [`client`].
pub(crate) unsafe fn client_in(
    dir: *const c_char,
    config: *const bw_client_config,
) -> Result<(RunDir, ClientConfig), Failure> {
    // SAFETY: as the caller promises.
    let dir = unsafe { run_dir(dir) }?;
    // SAFETY: as the caller promises.
    Ok((dir, unsafe { client(config) }?))
}

/// # Safety
/// `config` is null or valid.
unsafe fn client(config: *const bw_client_config) -> Result<ClientConfig, Failure> {
    let default = ClientConfig::default();
    if config.is_null() {
        return Ok(default);
    }
    // SAFETY: as the caller promises.
    let config = unsafe { extensible::read(config) }?;
    let doorbell = match config.doorbell {
        BW_DOORBELL_FUTEX => Doorbell::Futex,
        BW_DOORBELL_EVENTFD => Doorbell::Eventfd,
        BW_DOORBELL_SOCKET => Doorbell::Socket,
        _ => return Err(Failure::invalid("no such doorbell")),
    };
    let backpressure = match config.backpressure {
        BW_BACKPRESSURE_ADAPT => Backpressure::Adapt,
        BW_BACKPRESSURE_WAIT => Backpressure::Wait,
        BW_BACKPRESSURE_FAIL => Backpressure::Fail,
        BW_BACKPRESSURE_GROW => Backpressure::Grow,
        _ => return Err(Failure::invalid("no such backpressure")),
    };
    // SAFETY: as the caller promises.
    let token = unsafe { token(config.token) }?;
    // SAFETY: as the caller promises.
    let trusted = unsafe { users(config.trusted, config.trusted_len) }?;
    let spin = SpinPolicy { max: Duration::from_nanos(config.spin_max_ns), ..default.spin };
    let lane = lane(config.lane_size, default.lane.clone())?;
    Ok(default
        .timeout(Duration::from_nanos(config.timeout_ns))
        .connect_timeout(Duration::from_nanos(config.connect_timeout_ns))
        .spin(spin)
        .lane(lane)
        .doorbell(doorbell)
        .backpressure(backpressure)
        .token(token)
        .trusted(trusted))
}

/// # Safety
/// `config` is null or valid.
pub(crate) unsafe fn server(config: *const bw_server_config) -> Result<ServerConfig, Failure> {
    let default = ServerConfig::default();
    if config.is_null() {
        return Ok(default);
    }
    // SAFETY: as the caller promises.
    let config = unsafe { extensible::read(config) }?;
    if config.workers > 1 << 22 {
        return Err(Failure::invalid("more workers than Linux has threads"));
    }
    // SAFETY: as the caller promises.
    let token = unsafe { token(config.token) }?;
    // SAFETY: as the caller promises.
    let users = unsafe { users(config.users, config.users_len) }?;
    let admission = match config.admit {
        BW_ADMIT_SAME_USER => Admission::SameUser,
        BW_ADMIT_GROUP => Admission::Group(Group::from(config.group)),
        BW_ADMIT_USERS => Admission::Users(users),
        BW_ADMIT_ANY => Admission::Any,
        _ => return Err(Failure::invalid("no such admission")),
    };
    let spin = SpinPolicy { max: Duration::from_nanos(config.spin_max_ns), ..default.spin };
    let lane = lane(config.lane_size, default.lane.clone())?;
    Ok(default
        .spin(spin)
        .workers(config.workers)
        .max_sessions(config.max_sessions)
        .max_memory((config.max_memory > 0).then_some(config.max_memory))
        .drain_timeout(Duration::from_nanos(config.drain_timeout_ns))
        .lane(lane)
        .admission(admission)
        .token(token))
}
