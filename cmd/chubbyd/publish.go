package main

import (
	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cmd/chubbyd/internal/names"
)

// publishing is how clients find the replicas by the cell's name: at most one of the two.
type publishing struct {
	dns  names.DNS  // if its Server is not empty
	hook names.Hook // if it is not empty
}

func (p publishing) install(replica *cell.Config) {
	switch {
	case p.hook != "":
		replica.Publish = p.hook.Publish
	case p.dns.Server != "":
		p.dns.Now = wallNow
		replica.Publish = p.dns.Publish
	}
}
