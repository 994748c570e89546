// Package misuse has the words for clients that misuse a cell: which ways there are to do that, from when on something is one, and
// what a report about it says. Most clients that harmed the first Chubby had misunderstood what it was for (Chubby §4.5).
//
// A master counts what each session does, and client.Cell.Lint (chubbyctl lint) asks it for what that amounts to. Nothing is
// refused, ended or slowed because of a finding; and the limits are far from what a well-behaved client does. What a master cannot
// see of a misuse, Kind.Unseen says. The package is pure: it reads no clock, and knows neither the wire nor the master.
package misuse
