// Package term writes what chubbyctl says, for people and for programs: pages of lines
// and tables, in colour and kept to the width where a terminal shows them, and one JSON
// object per line for -o json. It also says durations and sizes in words, and shows the
// progress of a wait.
//
// The text of others (reasons, hosts, principals, names of nodes) cannot give orders to
// a terminal: Remark, Complain, Table, SayIn, Page.Sentence and Format.Print escape what a terminal does not show as it is.
// What is printed in any other way passes through Printable, or Style.Name.
//
// A reader may stop reading: a pager on an earlier page, a log that hangs. A Speaker
// never keeps chubbyctl from its work for that, and an Outlet not after a signal.
//
// # Goroutines
//
// A Speaker has one while lines wait to be written, which Finish waits for. A Progress has
// one, its timer's, which has ended when Stop returns. An Outlet has one for each Write; if
// its reader has stopped, that one ends with the process.
package term
