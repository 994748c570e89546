package chubbymigrate_test

import (
	"context"
	"fmt"
	"log"
	"testing/fstest"

	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	chubbymigrate "github.com/chubbylock/chubby/contrib/migrate"
	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database/sqlite"
	"github.com/golang-migrate/migrate/v4/source/iofs"
)

// Every process of a program migrates the database as it starts, and they do so one at a time. A cell in
// memory takes the place of a real one.
func Example() {
	cell, err := celltest.New(1)
	if err != nil {
		log.Fatal(err)
	}
	defer cell.Close()
	source, err := iofs.New(fstest.MapFS{"1_users.up.sql": {Data: []byte("CREATE TABLE users (name text);")}}, ".")
	if err != nil {
		log.Fatal(err)
	}
	inner, err := (&sqlite.Sqlite{}).Open("sqlite://:memory:")
	if err != nil {
		log.Fatal(err)
	}

	driver, err := chubbymigrate.New(context.Background(), inner, chubbymigrate.Config{
		Path:   "/ls/local/migrations",
		Client: client.Config{Servers: cell.Servers(), Dialer: cell.Dial},
	})
	if err != nil {
		log.Fatal(err)
	}
	m, err := migrate.NewWithInstance("iofs", source, "sqlite", driver)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("migrated:", m.Up())
	fmt.Println("and again:", m.Up())
	m.Close() // closes the driver, too
	// Output:
	// migrated: <nil>
	// and again: no change
}
