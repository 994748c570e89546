package wire

import pb "github.com/chubbylock/chubby/api/chubbypb"

// rpc is what is known of a call by its method.
type rpc struct {
	audited audited

	keepsAlive  bool // it waits by design: it has no deadline and no trace, and is never slow
	endless     bool // it is served at any rate, since it does not reach the log
	givesBack   bool // it has a reserve of its rate, so that a client which makes too many calls can still release
	opens       bool // a session, which has a rate of its own
	queues      bool // for a lock: that wait is not the replica's
	waits       bool // for an outage: no time that it takes is the replica's
	takesTokens bool // of clients that are not known yet
}

// audited says which results of a call are an act. Refusals of all calls are recorded.
type audited uint8

const (
	onlyRefusals audited = iota
	everyCall            // it is for operators, or changes access rights
	listsAlone           // if about an access control list
	othersOnly           // if about another principal's session, or an operator's
	beginsOnly           // the first of several calls that belong together
)

// rpcs has a row for every RPC, by its full name: one has to be thought of.
func rpcs() map[string]rpc {
	return map[string]rpc{
		pb.Chubby_CreateSession_FullMethodName: {opens: true},
		//mutant: pb.Chubby_KeepAlive_FullMethodName: {keepsAlive: true},
		pb.Chubby_KeepAlive_FullMethodName:  {keepsAlive: true, endless: true},
		pb.Chubby_KeepAlives_FullMethodName: {keepsAlive: true, endless: true},
		pb.Chubby_RenewCache_FullMethodName: {},
		pb.Chubby_EndSession_FullMethodName: {audited: othersOnly, givesBack: true},

		pb.Chubby_Open_FullMethodName:               {audited: listsAlone},
		pb.Chubby_CloseHandle_FullMethodName:        {givesBack: true},
		pb.Chubby_GetContentsAndStat_FullMethodName: {},
		pb.Chubby_GetStat_FullMethodName:            {},
		pb.Chubby_ReadDir_FullMethodName:            {},
		pb.Chubby_SetContents_FullMethodName:        {audited: listsAlone},
		pb.Chubby_SetACL_FullMethodName:             {audited: everyCall},
		pb.Chubby_Delete_FullMethodName:             {audited: listsAlone},
		pb.Chubby_Txn_FullMethodName:                {audited: listsAlone},

		pb.Chubby_Acquire_FullMethodName:        {queues: true},
		pb.Chubby_TryAcquire_FullMethodName:     {},
		pb.Chubby_Release_FullMethodName:        {givesBack: true},
		pb.Chubby_GetSequencer_FullMethodName:   {},
		pb.Chubby_SetSequencer_FullMethodName:   {},
		pb.Chubby_CheckSequencer_FullMethodName: {},
		pb.Chubby_Cancel_FullMethodName:         {givesBack: true},
		pb.Chubby_BreakLock_FullMethodName:      {audited: everyCall},

		pb.Chubby_ListLocks_FullMethodName:    {},
		pb.Chubby_ListSessions_FullMethodName: {},
		pb.Chubby_Overview_FullMethodName:     {},
		pb.Chubby_Lint_FullMethodName:         {},
		pb.Chubby_ListQuotas_FullMethodName:   {},
		pb.Chubby_Explain_FullMethodName:      {},
		pb.Chubby_History_FullMethodName:      {},

		pb.Chubby_SetQuota_FullMethodName:      {audited: everyCall},
		pb.Chubby_Transfer_FullMethodName:      {audited: everyCall, waits: true},
		pb.Chubby_FinishUpgrade_FullMethodName: {audited: everyCall},
		pb.Chubby_Backup_FullMethodName:        {audited: beginsOnly},
		pb.Chubby_Restore_FullMethodName:       {audited: beginsOnly},
		pb.Chubby_ChangeMembers_FullMethodName: {audited: everyCall},

		//mutant: pb.Cell_Locate_FullMethodName:       {},
		pb.Cell_Locate_FullMethodName:       {endless: true},
		pb.Cell_Status_FullMethodName:       {},
		pb.Cell_Members_FullMethodName:      {},
		pb.Cell_Debug_FullMethodName:        {audited: everyCall},
		pb.Cell_Authenticate_FullMethodName: {takesTokens: true},
	}
}
