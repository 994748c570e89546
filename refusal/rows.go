package refusal

import (
	"fmt"

	"github.com/chubbylock/chubby/api"
)

// row is the code of a cause, and the format of its sentence with the facts that go into it.
type row struct {
	code   api.Code
	format string
	facts  []fact
}

// rows has one row for each cause. The sentences may be reworded in any version.
var rows = map[Cause]row{
	EmptyCommand: {api.InvalidArgument, "an empty command", nil},
	OtherTerm:    {api.StaleEpoch, "proposed in epoch %d, committed in %d", []fact{epoch, currentEpoch}},
	EpochUnbegun: {api.StaleEpoch, "proposed in epoch %d, which has not begun; the cell is in %d", []fact{epoch, currentEpoch}},
	EpochBegun:   {api.StaleEpoch, "epoch %d has begun already; the cell is in %d", []fact{epoch, currentEpoch}},
	Unexplained:  {api.InvalidArgument, "the cell refused it and gave no cause, which is a fault of Chubby; please report it", nil},

	Withdrawn:              {api.Cancelled, "the caller withdrew the request", nil},
	RequestFinished:        {api.InvalidArgument, "request %d of session %v is finished: its client gave up its answer; ask anew under a new number", []fact{request, session}},
	RequestReused:          {api.InvalidArgument, "request %d of session %v was used for something else before: give every request a number of its own", []fact{request, session}},
	TooManyOutstanding:     {api.QuotaExceeded, "request %d has %d requests outstanding and %d are allowed: wait for some answers first", []fact{request, used, allowed}},
	RequestsExhausted:      {api.InvalidArgument, "request %d is of a client that gave out numbers up to %d: they end at %d", []fact{request, highestIssued, allowed}},
	OutstandingUnordered:   {api.InvalidArgument, "request %d lists %d after %d as outstanding: want them ascending, from 1 to %d", []fact{request, listed, previous, highestIssued}},
	OutstandingWithoutSelf: {api.InvalidArgument, "request %d is not among those it lists as outstanding: list every request whose answer is wanted", []fact{request}},
	GrantLost:              {api.LockLost, "the lock was granted with token %d and has been given up or lost since; acquire it anew", []fact{generation}},

	SessionUnknown:     {api.SessionExpired, "there is no session %v: it has ended, or never was; what it held is gone, so begin a new one", []fact{session}},
	SessionTerminating: {api.SessionExpired, "session %v is being ended: %s", []fact{session, termination}},
	TargetUnknown:      {api.NotFound, "there is no session %v: it has ended, or never was", []fact{session}},
	LeaseOutOfRange:    {api.InvalidArgument, "a lease of %v; it must be between %v and %v", []fact{length, minLease, maxLease}},
	LeaseTooLong:       {api.InvalidArgument, "a lease of %v for session %v: the longest is %v", []fact{length, session, maxLease}},
	SessionQuota:       {api.QuotaExceeded, "sessions of principal %q: %d used, %d allowed; close some, or have the quota raised", []fact{principal, used, allowed}},
	TerminationTooLong: {api.InvalidArgument, "why the session is ended is to be said in at most %d bytes", []fact{allowed}},

	NameTooLong:         {api.InvalidArgument, "there can be no such node: its name has %d bytes, more than %d", []fact{used, allowed}},
	NameMalformed:       {api.InvalidArgument, "there can be no such node: %q is not a name: want a slash before each component and none at the end", []fact{name}},
	NameTooDeep:         {api.InvalidArgument, "there can be no such node: its name has %d components, more than %d", []fact{used, allowed}},
	NodeUnknown:         {api.NotFound, "there is no such node", nil},
	PathUnknown:         {api.NotFound, "there is no such node; see chubbyctl ls %s", []fact{path}},
	NodeExists:          {api.Exists, "the node exists already, as a %v", []fact{kind}},
	NodeDying:           {api.Exists, "the ephemeral node is being removed, for nobody has it open any more; try again in a moment", nil},
	ParentDying:         {api.Exists, "the ephemeral directory that the node is to be created in is being removed, for nobody has it open any more; try again in a moment", nil},
	NodeDyingElsewhere:  {api.Exists, "the ephemeral node is being removed with the session that had it; try again in a moment", nil},
	ParentUnknown:       {api.NotFound, "the directory to create the node in, %q within the cell, is not there; create that first", []fact{name}},
	ParentIsFile:        {api.NotDirectory, "%q, in which the node is to be created, is a %v", []fact{name, kind}},
	KindInvalid:         {api.InvalidArgument, "%v is neither a file nor a directory", []fact{kind}},
	DirectoryContents:   {api.InvalidArgument, "a directory is to be created with %d bytes of contents; only files have contents", []fact{used}},
	NoCreator:           {api.InvalidArgument, "an ephemeral node is to be created by no session", nil},
	NoOpener:            {api.InvalidArgument, "a node is to be opened by no session", nil},
	InstanceInvalid:     {api.InvalidArgument, "%d cannot be the instance of a node: want 1 to %d", []fact{generation, maxGeneration}},
	ContentsTooLarge:    {api.TooLarge, "the contents have %d bytes; at most %d are allowed", []fact{used, allowed}},
	ContentsChanged:     {api.GenerationMismatch, "the contents are at generation %d, not at %d: they were written since; read them again", []fact{current, generation}},
	NamesOfACLsChanged:  {api.GenerationMismatch, "the ACL names are at generation %d, not at %d: they were written since; read them again", []fact{current, generation}},
	CounterWentBack:     {api.Corrupt, "the cell's counter gave %d for what is at generation %d already; stop all replicas, and keep every data directory for analysis", []fact{generation, current}},
	ContentsOfDirectory: {api.IsDirectory, "the node is a directory; only files have contents", nil},
	NodeIsDirectory:     {api.IsDirectory, "the node is a directory", nil},
	NodeIsFile:          {api.NotDirectory, "the node is a file", nil},
	RootIsPermanent:     {api.PermissionDenied, "the root directory of a cell cannot be deleted", nil},
	DirectoryNotEmpty:   {api.NotEmpty, "the directory is not empty (children: %d); delete them first", []fact{used}},
	NodeGone:            {api.HandleClosed, "the node is gone: it was deleted, or removed with its session; open it anew", nil},
	NodeRecreated:       {api.HandleClosed, "the node was deleted and created again, as instance %d; the handle is for instance %d: open it anew", []fact{current, generation}},
	NodeDeleted:         {api.HandleClosed, "the node was deleted; open it anew", nil},

	ACLNameTooLong:      {api.InvalidArgument, "the name of an ACL is longer than %d bytes", []fact{allowed}},
	ACLUnknown:          {api.NotFound, "there is no ACL file %q: create it first (chubbyctl acl file put), or nobody would have the right", []fact{list}},
	ACLDirectoryKind:    {api.InvalidArgument, "%s is where the access control lists are: create it as a permanent directory", []fact{aclDir}},
	ACLFileKind:         {api.InvalidArgument, "what is directly in %s is an access control list: create a permanent file, or choose another place", []fact{aclDir}},
	NotAdmittedToRead:   {api.PermissionDenied, "%q may not read %s: the list %s does not name it", []fact{principal, node, list}},
	NotAdmittedToWrite:  {api.PermissionDenied, "%q may not write and lock %s: the list %s does not name it", []fact{principal, node, list}},
	NotAdmittedToChange: {api.PermissionDenied, "%q may not change the ACL of %s: the list %s does not name it", []fact{principal, node, list}},
	NotOpenedToRead:     {api.PermissionDenied, "the handle was not opened for reading; open the node so", nil},
	NotOpenedToWrite:    {api.PermissionDenied, "the handle was not opened for writing and locking; open the node so", nil},
	NotOpenedToChange:   {api.PermissionDenied, "the handle was not opened for changing its ACL; open the node so", nil},

	NodeQuota:           {api.QuotaExceeded, "nodes of principal %q: %d used, %d allowed; delete some, or have the quota raised", []fact{principal, used, allowed}},
	ByteQuota:           {api.QuotaExceeded, "bytes of contents of principal %q: %d used, %d allowed, %d more asked for; delete some, or have the quota raised", []fact{principal, used, allowed, more}},
	NodeQuotaBelow:      {api.QuotaExceeded, "nodes below directory %s: %d used, %d allowed; delete some, or have the quota raised", []fact{directory, used, allowed}},
	ByteQuotaBelow:      {api.QuotaExceeded, "bytes of contents below directory %s: %d used, %d allowed, %d more asked for; delete some, or have the quota raised", []fact{directory, used, allowed, more}},
	QuotaOfFile:         {api.NotDirectory, "only directories have quotas", nil},
	QuotaNegative:       {api.InvalidArgument, "a quota is negative: %+v; 0 stands for the default", []fact{quota}},
	QuotaNegativeBelow:  {api.InvalidArgument, "a quota of %d nodes and %d bytes cannot be", []fact{quotaNodes, quotaBytes}},
	SessionHandles:      {api.QuotaExceeded, "handles of the session: %d used, %d allowed; close some", []fact{used, allowed}},
	HandleQuota:         {api.QuotaExceeded, "handles of principal %q: %d used, %d allowed; close some, or have the quota raised", []fact{principal, used, allowed}},
	HandlesFromFailOver: {api.QuotaExceeded, "handles of the session from before the master failed over: %d used or closed since, %d allowed; open the node anew", []fact{used, allowed}},
	LockWaiters:         {api.QuotaExceeded, "waiters for this lock: %d used, %d allowed; try again later", []fact{used, allowed}},
	WaiterQuota:         {api.QuotaExceeded, "waiters of principal %q: %d used, %d allowed; wait for less, or have the quota raised", []fact{principal, used, allowed}},

	ModeInvalid:              {api.InvalidArgument, "%v is not a way to hold a lock: want %v or %v", []fact{wanted, exclusive, shared}},
	LockForNobody:            {api.InvalidArgument, "a lock is asked for by no session", nil},
	DelayOutOfRange:          {api.InvalidArgument, "a lock-delay of %v is outside 0 to %v", []fact{length, maxLockDelay}},
	ReasonTooLong:            {api.InvalidArgument, "the reason for the lock has %d bytes; at most %d are allowed", []fact{used, allowed}},
	HeldByHandle:             {api.LockHeld, "the lock is held in %v mode by %s: this handle holds the lock itself; locks are not recursive", []fact{mode, holders}},
	HeldWhileRevoked:         {api.LockHeld, "the lock is held in %v mode by %s: it is being taken away from them, and free once they have heard of it or their leases are over", []fact{mode, holders}},
	HeldInConflict:           {api.LockHeld, "the lock is held in %v mode by %s: wait for it, or ask its holder to release it", []fact{mode, holders}},
	HeldNodeDeleted:          {api.LockHeld, "the lock is held in %v mode by %s: a node whose lock another handle holds is not deleted; wait until it is free", []fact{mode, holders}},
	WaitersComeFirst:         {api.LockHeld, "others have been waiting for the lock, and come first", nil},
	EphemeralNotOpen:         {api.HandleClosed, "the handle does not have the ephemeral node open; open it anew", nil},
	Delayed:                  {api.LockDelayed, "a session that held the lock in %v mode failed; nobody may have it in %v mode before its lock-delay of %v is over", []fact{mode, wanted, length}},
	NotHolder:                {api.NotHeld, "the handle does not hold the lock", nil},
	HeldInOther:              {api.NotHeld, "the handle holds the lock in generation %d, not in %d", []fact{current, generation}},
	HeldByNobody:             {api.NotHeld, "nobody holds the lock", nil},
	RevocationTooLong:        {api.InvalidArgument, "why the lock is taken away is to be said in at most %d bytes", []fact{allowed}},
	HandleClosed:             {api.HandleClosed, "the handle was closed; open the node anew", nil},
	HandleClosedWhileWaiting: {api.HandleClosed, "the handle was closed while the request waited", nil},
	HandleClosedWhileAsked:   {api.HandleClosed, "the handle was closed while the lock was asked for; open the node anew", nil},

	SequencerFileGone:    {api.BadSequencer, "the lock's file is gone", nil},
	SequencerNotHeld:     {api.BadSequencer, "the lock is not held; its last token was %d", []fact{current}},
	SequencerPassedOn:    {api.BadSequencer, "the lock has passed on: token %d is not its present one, %d", []fact{generation, current}},
	SequencerMode:        {api.BadSequencer, "the lock is held in %v mode, not in %v", []fact{mode, wanted}},
	SequencerRevoked:     {api.BadSequencer, "the lock is being taken from its holder: %s", []fact{broken}},
	SequencerTerminating: {api.BadSequencer, "the session that holds the lock is being ended: %s", []fact{termination}},

	LevelReached: {api.InvalidArgument, "the cell is at feature level %d already", []fact{used}},

	NotOperator: {api.PermissionDenied, "%q is no operator of the cell: the list %s does not name it", []fact{principal, list}},

	RestoreNotBegun:   {api.InvalidArgument, "this session is not restoring a backup: it was not begun, a part of it was refused, or it was given up, by an operator or because no step came for a minute; begin again", nil},
	RestoreByOther:    {api.Exists, "a backup is being restored already, by %q in session %v: wait for its end, or give it up (chubbyctl cell restore --give-up)", []fact{principal, session}},
	RestoreLevel:      {api.InvalidArgument, "the backup is of feature level %d, and the cell of %d: finish the upgrade of the cell first (chubbyctl cell upgrade finish)", []fact{used, allowed}},
	RestoreCounter:    {api.InvalidArgument, "the fencing counter, %d, is above %d: it cannot be raised further", []fact{current, allowed}},
	RestoreCaches:     {api.InvalidArgument, "a session that caches restores no backup: open one without a cache", nil},
	RestoreSealed:     {api.InvalidArgument, "the backup is complete already: nothing is added to it", nil},
	RestorePart:       {api.InvalidArgument, "part %d of the backup came, and part %d is next: begin again", []fact{used, allowed}},
	RestoreNode:       {api.InvalidArgument, "%s of the backup cannot be: the backup is damaged, or something else than Chubby made it; nothing was restored", []fact{node}},
	RestoreIncomplete: {api.InvalidArgument, "%d nodes of the backup have come, of %d that were announced; or its quotas have not", []fact{used, allowed}},
	RestoreUnsealed:   {api.InvalidArgument, "the backup is not complete yet: nothing was restored", nil},
	RestoreSessions:   {api.Exists, "sessions that have not ended yet: %d; wait until their clients have let go, or their leases are over", []fact{used}},
	RestoreOwns:       {api.InvalidArgument, "the session that restores the backup has %s locked, or open as an ephemeral node: let go of it", []fact{node}},
	RestoreUnderWay:   {api.Unavailable, "the cell is being restored from a backup, by %q in session %v: try again in a minute; chubbyctl cell status says how it ends", []fact{principal, session}},

	RestoreTakesNothing: {api.InvalidArgument, "the session that restores a backup takes no lock and opens no ephemeral node before that has ended", nil},

	MemberUsed:      {api.Exists, "the cell has, or has had, a replica %s: an id is never used again; choose another", []fact{path}},
	MemberUnknown:   {api.NotFound, "the cell has no replica %s; see chubbyctl cell members", []fact{path}},
	MemberAddress:   {api.Exists, "the raft address %s is that of another replica of the cell", []fact{path}},
	MemberUnsettled: {api.Unavailable, "replica %s is still joining or leaving: chubbyctl cell members shows what it waits for; chubbyctl cell remove gives up one that is joining, and with --cancel takes back that one leaves", []fact{path}},
	MemberStays:     {api.NotFound, "replica %s is not leaving: there is nothing to take back; see chubbyctl cell members", []fact{path}},
	MemberNeeded:    {api.InvalidArgument, "replica %s cannot leave now: of the replicas that would stay %d of %d answer, which is no majority; replace first those that do not (chubbyctl cell replace)", []fact{path, used, allowed}},

	CellFull: {
		api.QuotaExceeded, "the cell holds %d bytes, as max-contents-mib counts them, of %d that the master has memory for, and %d more are asked for: delete something, or have an operator find who holds the most (chubbyctl quota ls), and give the replicas more memory",
		[]fact{used, allowed, more},
	},
	MemberLast:     {api.InvalidArgument, "replica %s is the only one of the cell: add another first", []fact{path}},
	MembersTooMany: {api.QuotaExceeded, "the cell has had %d replicas; it may have %d at a time, and 1000 in its life", []fact{used, allowed}},
	WaitsForItself: {api.Deadlock, "waiting would never end, because %s: let go of what you hold, and try again", []fact{cycle}},

	ConditionPresent:   {api.GenerationMismatch, "there is such a node, with contents at generation %d; read it again", []fact{current}},
	ConditionAbsent:    {api.GenerationMismatch, "there is no such node, or none any more; read it again", nil},
	ConditionRecreated: {api.GenerationMismatch, "the node is not instance %d, which was deleted; its contents are at generation %d: read it again", []fact{generation, current}},
	ConditionDying:     {api.GenerationMismatch, "the ephemeral node is being removed, for nobody has it open any more; try again in a moment", nil},

	MemberMalformed: {api.InvalidArgument, "a change of the cell's replicas adds one, with an id, an incarnation and addresses as host:port, removes one, or keeps one that is leaving", nil},
}

// Cause is why something is refused. The list is closed, and its numbers are stable: they are in
// the log and in snapshots, and are never reused. A new cause gets a number above the others, and a
// level (see package raftfsm, "Feature levels").
type Cause uint16

// The causes that concern a command, or the epoch of its master.
const (
	EmptyCommand Cause = 1 // no field that this version knows is set
	OtherTerm    Cause = 2 // proposed in Epoch, committed in CurrentEpoch
	EpochUnbegun Cause = 3 // proposed in Epoch; the cell is in CurrentEpoch
	EpochBegun   Cause = 4 // Epoch was to begin; the cell is in CurrentEpoch
	Unexplained  Cause = 94
)

// The causes that concern the number of a request.
const (
	Withdrawn              Cause = 5  // by its caller
	RequestFinished        Cause = 6  // Request of Session
	RequestReused          Cause = 7  // Request of Session
	TooManyOutstanding     Cause = 8  // Request has Used of Allowed
	RequestsExhausted      Cause = 9  // Request, HighestIssued, Allowed
	OutstandingUnordered   Cause = 10 // Request, Listed, Previous, HighestIssued
	OutstandingWithoutSelf Cause = 11 // Request
	GrantLost              Cause = 12 // Generation
)

// The causes that concern a session.
const (
	SessionUnknown     Cause = 13 // Session
	SessionTerminating Cause = 14 // Session, By
	TargetUnknown      Cause = 15 // Session
	LeaseOutOfRange    Cause = 16 // Length
	LeaseTooLong       Cause = 17 // Length, Session
	SessionQuota       Cause = 18 // Principal, Used, Allowed
	TerminationTooLong Cause = 19 // the given reason is longer than Allowed
)

// The causes that concern a node, or its name.
const (
	NameTooLong         Cause = 20 // Used bytes, Allowed
	NameMalformed       Cause = 21 // Name
	NameTooDeep         Cause = 22 // Used components, Allowed
	NodeUnknown         Cause = 23
	PathUnknown         Cause = 24 // Path is the parent's
	NodeExists          Cause = 25 // Kind
	NodeDying           Cause = 26
	ParentDying         Cause = 27
	NodeDyingElsewhere  Cause = 28 // when a session opens a node that is dying
	ParentUnknown       Cause = 29 // Name is the parent's
	ParentIsFile        Cause = 30 // Name and Kind are the parent's
	KindInvalid         Cause = 31 // Kind
	DirectoryContents   Cause = 32 // Used bytes
	NoCreator           Cause = 33
	NoOpener            Cause = 34
	InstanceInvalid     Cause = 35 // Generation
	ContentsTooLarge    Cause = 36 // Used bytes, Allowed
	ContentsChanged     Cause = 37 // Current, Generation
	NamesOfACLsChanged  Cause = 38 // Current, Generation
	CounterWentBack     Cause = 39 // Generation of the counter, Current of the node
	ContentsOfDirectory Cause = 40
	NodeIsDirectory     Cause = 41
	NodeIsFile          Cause = 42
	RootIsPermanent     Cause = 43
	DirectoryNotEmpty   Cause = 44 // Used children
	NodeGone            Cause = 45
	NodeRecreated       Cause = 46 // Current, Generation
	NodeDeleted         Cause = 47 // while a request waited for its lock
)

// The causes that concern access control lists and rights.
const (
	ACLNameTooLong      Cause = 48 // Allowed bytes
	ACLUnknown          Cause = 49 // List
	ACLDirectoryKind    Cause = 50 // another kind of node in the place of the directory of lists
	ACLFileKind         Cause = 51 // another kind of node in the place of a list
	NotAdmittedToRead   Cause = 52 // Principal, List, Name and Kind of the node
	NotAdmittedToWrite  Cause = 53 // the same
	NotAdmittedToChange Cause = 54 // the same
	NotOpenedToRead     Cause = 55
	NotOpenedToWrite    Cause = 56
	NotOpenedToChange   Cause = 57
)

// The causes that concern quotas and limits.
const (
	NodeQuota           Cause = 58 // Principal, Used, Allowed
	ByteQuota           Cause = 59 // Principal, Used, Allowed, More
	NodeQuotaBelow      Cause = 60 // Name is the directory's; Used, Allowed
	ByteQuotaBelow      Cause = 61 // Name is the directory's; Used, Allowed, More
	QuotaOfFile         Cause = 62
	QuotaNegative       Cause = 63 // Quota of a principal
	QuotaNegativeBelow  Cause = 64 // Quota of a directory
	SessionHandles      Cause = 65 // Used, Allowed
	HandleQuota         Cause = 66 // Principal, Used, Allowed
	HandlesFromFailOver Cause = 67 // Used, Allowed
	LockWaiters         Cause = 68 // Used, Allowed
	WaiterQuota         Cause = 69 // Principal, Used, Allowed
)

// The causes that concern a lock, or the handle through which a client wants it. Those with the
// code LockHeld have Holders, HolderCount and Mode.
const (
	ModeInvalid              Cause = 70 // Wanted
	LockForNobody            Cause = 71
	DelayOutOfRange          Cause = 72 // Length
	ReasonTooLong            Cause = 73 // Used bytes, Allowed
	HeldByHandle             Cause = 74
	HeldWhileRevoked         Cause = 75
	HeldInConflict           Cause = 76
	HeldNodeDeleted          Cause = 77
	WaitersComeFirst         Cause = 78 // Holders is the first of them; Mode is not set
	EphemeralNotOpen         Cause = 79
	Delayed                  Cause = 80 // Mode, Wanted, Length
	NotHolder                Cause = 81
	HeldInOther              Cause = 82 // Current, Generation
	HeldByNobody             Cause = 83
	RevocationTooLong        Cause = 84 // the given reason is longer than Allowed
	HandleClosed             Cause = 85
	HandleClosedWhileWaiting Cause = 86
	HandleClosedWhileAsked   Cause = 87
)

// The causes that concern a sequencer as a precondition.
const (
	SequencerFileGone    Cause = 88
	SequencerNotHeld     Cause = 89 // Current
	SequencerPassedOn    Cause = 90 // Generation, Current
	SequencerMode        Cause = 91 // Mode, Wanted
	SequencerRevoked     Cause = 92 // By
	SequencerTerminating Cause = 93 // By
)

// LevelReached refuses to raise the feature level of a cell that is at level Used.
const LevelReached Cause = 95

// The causes that concern the restoring of a cell from a backup.
const (
	RestoreNotBegun   Cause = 96
	RestoreByOther    Cause = 97 // Session, Principal
	RestoreLevel      Cause = 98 // Used by the backup, Allowed
	RestoreCounter    Cause = 99 // Current, Allowed
	RestoreCaches     Cause = 100
	RestoreSealed     Cause = 101
	RestorePart       Cause = 102 // Used is the part that came, Allowed the one that is next
	RestoreNode       Cause = 103 // Name
	RestoreIncomplete Cause = 104 // Used nodes have come, Allowed were announced
	RestoreUnsealed   Cause = 105
	RestoreSessions   Cause = 106 // Used are left
	RestoreOwns       Cause = 107 // Name
	RestoreUnderWay   Cause = 108 // Session, Principal
)

// NotOperator refuses what only an operator of the cell may do: Principal, List.
const NotOperator Cause = 109

// Causes of changes of a cell's replicas.
const (
	MemberUsed      Cause = 110 // Path: the replica's id
	MemberUnknown   Cause = 111 // Path: the replica's id
	MemberAddress   Cause = 112 // Path: the address
	MemberUnsettled Cause = 113 // Path: the id of the replica whose change is under way
	MemberLast      Cause = 114 // Path: the replica's id
	MembersTooMany  Cause = 115 // Used, Allowed
	MemberMalformed Cause = 116
)

// WaitsForItself refuses a request for a lock that could never be granted, because those that it waits for wait for it:
// Cycle, and Used is how many steps it has.
const WaitsForItself Cause = 117

// The causes that concern a condition of a transaction. Current is the generation of the contents.
const (
	ConditionPresent   Cause = 118 // Current
	ConditionAbsent    Cause = 119
	ConditionRecreated Cause = 120 // Generation is the instance that was asked for; Current
	ConditionDying     Cause = 121 // Current
)

// RestoreTakesNothing refuses a lock or an ephemeral node to the session that restores a backup, from the seal on.
const RestoreTakesNothing Cause = 122

// Further causes of changes of a cell's replicas.
const (
	MemberStays  Cause = 123 // Path: the replica's id
	MemberNeeded Cause = 124 // Path: the replica's id; Used of the Allowed replicas that would stay answer
)

// CellFull refuses what would make a cell hold more than its replicas have memory for.
const CellFull Cause = 125 // Used bytes, Allowed, More

// Code returns the code of a cause, api.Uncertain for one that this version does not know.
func (c Cause) Code() api.Code {
	if row, ok := rows[c]; ok {
		return row.code
	}
	return api.Uncertain
}

// Level returns the feature level from which on a cell may refuse something with that cause.
func (c Cause) Level() int {
	if c > LevelReached {
		return 3
	}
	return 1
}

// IsKnown reports whether c is a cause of this version.
func (c Cause) IsKnown() bool {
	_, ok := rows[c]
	return ok
}

// String names a cause by its number.
func (c Cause) String() string { return fmt.Sprintf("cause %d", uint16(c)) }
