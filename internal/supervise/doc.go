// Package supervise runs a command, and ends it with everything it started before a deadline: the moment when
// somebody else could hold the command's lock. The deadline may move later; it is never missed.
//
// On Unix the command's parent is the guardian, a second process of this program. The two exchange JSON lines
// over pipes. chubbyctl sends signals and the command's limit, as instants of the boot-time clock, which runs
// during suspend. The guardian reports on the command. Neither waits for the other to read, nor for the user.
// The guardian acts on the last instants by itself, and at once when the pipe closes. So a stopped, killed or
// hung chubbyctl cannot let the command outlive its time.
//
// In turn, chubbyctl kills a late guardian, and then the command itself. On Linux the end of chubbyctl also
// continues a stopped guardian.
//
// When the command has ended, its remaining processes get time to end, for example a logger that reads the last
// lines; then they are stopped. The lock is held until all are gone.
//
// Two cases are not covered. If chubbyctl and the guardian are stopped and the command is not, it runs until
// one of them is continued. If the guardian is killed while chubbyctl is stopped, the system kills the command
// (PR_SET_PDEATHSIG), but its children run until chubbyctl is continued; if chubbyctl is killed too, they run
// on.
//
// On Linux the guardian also adopts orphans (PR_SET_CHILD_SUBREAPER), so no descendant escapes by leaving its
// process group or losing its parent. Other Unix systems reach only the process group; the rest have no
// guardian, and chubbyctl reaches only the command. Limits explains this.
//
// Out of reach everywhere are processes that others start for the command (a service manager, a container
// daemon, another machine), and those of a user that this one may not signal (sudo). The guardian reports the
// latter.
//
// The command starts as if its caller had started it: with the caller's ignored signals, as far as Go knows
// them, by a shell if the file is a script without "#!", and as the process in LISTEN_PID if that was
// chubbyctl. The terminal's foreground goes to the command or to chubbyctl's group, which may be a pipeline,
// whichever asks for it.
//
// # Goroutines
//
// A Process has three: one talks to the guardian, one reads its reports, one notifies the user. All end before
// Wait returns. The guardian has a loop, a reader of orders and its alarm's goroutine.
package supervise
