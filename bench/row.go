package main

import (
	"context"
	"fmt"
	"strings"
)

// row is one line of the table.
type row struct {
	name    string
	clients int
	// op returns the operation, nil if the worker does not have it.
	op func(w worker) func(context.Context) error
}

func (r row) String() string { return fmt.Sprintf("%s, %d", r.name, r.clients) }

// rows is the table, in order.
func rows(match string) []row {
	lock := func(w worker) func(context.Context) error { return w.LockUnlock }
	contend := func(w worker) func(context.Context) error { return w.Contend }
	write := func(w worker) func(context.Context) error { return w.Write }
	read := func(w worker) func(context.Context) error { return w.Read }
	cached := func(w worker) func(context.Context) error {
		if c, ok := w.(cacher); ok {
			return c.ReadCached
		}
		return nil
	}
	all := []row{
		{"lock+unlock", 1, lock},
		{"lock+unlock", 64, lock},
		{"one lock", 5, contend},
		{"write 100 B", 1, write},
		{"write 100 B", 64, write},
		{"read", 1, read},
		{"read", 64, read},
		{"read, cached", 1, cached},
	}
	var chosen []row
	for _, r := range all {
		if strings.Contains(r.String(), match) {
			chosen = append(chosen, r)
		}
	}
	return chosen
}

// maxClients is the number of workers that a list of rows needs.
func maxClients(list []row) int {
	most := 0
	for _, r := range list {
		most = max(most, r.clients)
	}
	return most
}
