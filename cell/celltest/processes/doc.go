// Package processes runs a cell of chubbyd processes for a test. Package celltest
// runs the replicas in the process of the test, where time is virtual and the
// network can be cut; here they are the real program, with files on the disk and
// connections over the loopback interface, and the test kills them by SIGKILL:
//
//	c := processes.Start(t, 3)
//	keeper, err := client.Keep(ctx, client.Config{Servers: c.Servers()})
//	…
//	c.KillMaster()
//
// KillMasters kills one master after the other while the test does its work, and
// KillMastersFor until enough have died. A replica that was killed is started
// again two seconds later, on its data.
//
// A program that the test itself kills or stops must be a process, too: Run
// starts one, and sees that it ends with the test, and that a data race in it
// fails the test. Usually it is the binary of the test (os.Args[0]), whose
// TestMain looks for an environment variable.
//
// Everything runs in real time, so a test waits for elections, about two seconds
// each, and for leases. It runs on Unix. chubbyd is built by the go command out
// of the module that the test was compiled with.
package processes
