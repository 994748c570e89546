package refusal

import (
	"fmt"

	"github.com/chubbylock/chubby/api"
)

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
