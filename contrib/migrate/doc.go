// Package chubbymigrate has the migrations of a database run one at a time, with
// github.com/golang-migrate/migrate/v4: Driver is a database.Driver around another one, whose Lock is
// that of a file in a Chubby cell.
//
//	inner, err := sqlite.WithInstance(db, &sqlite.Config{})
//	driver, err := chubbymigrate.New(ctx, inner, chubbymigrate.Config{Path: "/ls/local/migrations"})
//	m, err := migrate.NewWithInstance("iofs", source, "sqlite", driver)
//	defer m.Close()
//	err = m.Up()
//
// It is for databases whose own driver has no lock between processes, or has one that a lost connection
// or a pooler of connections takes away unnoticed, and for migrations that touch more than one database.
//
// # When the lock is lost
//
// A lock is lost when the cell has not extended the session's lease in time, or when an operator takes it
// away. From then on Run, SetVersion and Drop are refused with LockLost: a client.Margin before the first
// moment at which another could hold the lock, by the local clock. A migration that was running then is not
// marked as done: the database stays dirty, as after every migration that did not end, and Unlock says
// LockLost.
//
// What is not prevented: a statement that the database has begun goes on there, since Run of a driver cannot
// be ended; and a process that is stopped between the check and its statement runs it when it goes on. For
// that time there is the lock-delay (Config.LockDelay): after the failure of a session nobody has the lock
// for as long. A migration that may take longer needs a check in the database itself: a token in a table
// (Driver.Token, and examples/sqlfence of the main module).
package chubbymigrate
