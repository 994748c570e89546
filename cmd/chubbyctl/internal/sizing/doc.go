// Package sizing computes what a cell needs from what is in it and what it does: memory, disk,
// network and processors of each replica. It is arithmetic: the costs of one session, one node, one
// write were measured in a real cell (make sizing), and are in costs.json, of which docs/sizing.json
// is a copy. It knows no cell, and asks none.
package sizing
