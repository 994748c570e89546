// Command dashboard makes the pictures of docs/monitoring, by which people see what deploy/grafana/chubby.json shows, and we whether it
// shows anything. It runs a cell of five processes with certificates, three programs that use it, and a Prometheus that scrapes all of them and
// has the alerts; leaves the cell without a master for ten seconds, as a drill; kills the master in the middle (SIGKILL), and starts it again a minute later. Then it asks that Prometheus what the dashboard
// asks, and draws it in Chromium with the components that Grafana draws its panels with (@grafana/ui). It fails at a query that has an error or
// finds nothing, at whatever the browser complains of, and at a run with other fail-overs than those two.
//
// There is no Grafana server in it: its menus, variables and time picker are not in the pictures. The state timelines and the marks of
// take-overs are drawn by ours (page/panels.jsx), as that package has none.
//
// Run it by make dashboard-picture. It is a module of its own: nothing else here needs a browser or npm's packages.
package main
