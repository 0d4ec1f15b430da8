package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/everynode/everynode/internal/files/datadir"
	"github.com/everynode/everynode/internal/images"
	"github.com/everynode/everynode/internal/local/layout"
	"github.com/everynode/everynode/internal/local/machine"
	"github.com/everynode/everynode/internal/local/network"
	"github.com/everynode/everynode/internal/local/progress"
	"github.com/everynode/everynode/internal/local/remains"
)

// RunningError says that the cluster of a data dir runs already.
type RunningError struct {
	Phase layout.Phase
	// Usage says how to use it, if it is ready.
	Usage string
	PID   int
}

func (e *RunningError) Error() string {
	if e.Phase == layout.PhaseReady {
		return "this cluster runs already"
	}
	if e.PID == 0 { // it has only just begun
		return fmt.Sprintf("another everynode is at work on this cluster (%s); wait for it", e.Phase)
	}
	return fmt.Sprintf("another everynode (process %d) is at work on this cluster (%s); wait for it, or stop it", e.PID,
		e.Phase)
}

// stopPatience bounds the clean-up after a stop.
const stopPatience = time.Minute

// Up starts a cluster, reports progress and how to use it, and keeps it running
// until the context ends; then it stops it and leaves its data. It returns nil
// after such a stop, a *RunningError if the cluster runs already, and else what
// went wrong, in one line that says what to do; nothing is left running then.
func Up(ctx context.Context, o layout.Options, report progress.Report) error {
	forget, err := datadir.Make(o.DataDir, 0o755)
	if err != nil {
		return err
	}
	defer forget()
	held, err := acquireLock(o.DataDir)
	if errors.Is(err, errLocked) {
		return running(ctx, o, report)
	}
	if err != nil {
		return err
	}
	defer held.release()
	last, err := layout.Load(o.DataDir)
	if err != nil {
		return err
	}
	if err := cleanAfterCrash(ctx, last, report); err != nil {
		return err
	}
	c, err := prepare(ctx, o, last, report)
	if err != nil {
		if last == nil {
			held.remove()
		}
		return err
	}
	err = c.run(ctx)
	if ctx.Err() != nil {
		report(progress.Event{Kind: progress.Note, Text: "Stopping the cluster; its data stays in " + o.DataDir})
		err = nil
	}
	return errors.Join(err, c.cleanUp())
}

// SupervisorLog is where a supervisor in the background writes.
func SupervisorLog(dataDir string) string { return filepath.Join(dataDir, "up.log") }

// OpenSupervisorLog opens that log, in a data dir that it makes if it must.
// forget is for a start that failed: it removes both again if nothing was put
// there.
func OpenSupervisorLog(dataDir string) (log *os.File, forget func(), err error) {
	forgetDir, err := datadir.Make(dataDir, 0o755)
	if err != nil {
		return nil, nil, err
	}
	log, err = os.OpenFile(SupervisorLog(dataDir), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return nil, nil, fmt.Errorf("open the log: %w", err)
	}
	return log, func() {
		if _, err := os.Stat(layout.StatePath(dataDir)); errors.Is(err, fs.ErrNotExist) {
			_ = os.Remove(SupervisorLog(dataDir))
		}
		forgetDir()
	}, nil
}

// running deals with a cluster whose lock another process holds: it gets another
// number of nodes if that was asked for, else it is described.
func running(ctx context.Context, o layout.Options, report progress.Report) error {
	s, err := layout.Load(o.DataDir)
	if err != nil {
		return err
	}
	if s == nil {
		return &RunningError{Phase: layout.PhaseStarting}
	}
	if s.Phase == layout.PhaseReady && o.ControlPlanes != 0 && o.ControlPlanes != s.Plan.ControlPlanes() {
		return errors.New("the number of control planes changes with a restart; run everynode down first")
	}
	if s.Phase == layout.PhaseReady && o.Nodes != 0 && o.Nodes != s.Plan.NodeCount() {
		return askResize(ctx, o, s, report)
	}
	return &RunningError{Phase: s.Phase, PID: s.Supervisor.PID, Usage: usage(s.Plan, o, "")}
}

// cleanAfterCrash removes what a supervisor left that could not clean up.
func cleanAfterCrash(ctx context.Context, last *layout.State, report progress.Report) error {
	if last == nil || last.Phase == layout.PhaseStopped {
		return nil
	}
	return report.Step("clean up", func() (string, error) {
		n, err := remains.Remove(ctx, *last)
		if err != nil {
			return "", err
		}
		last.Stopped()
		return fmt.Sprintf("the cluster had not been stopped in order; removed %d leftovers", n), last.Save()
	})
}

// prepare decides everything about the cluster and checks what can be checked
// before anything is made.
func prepare(ctx context.Context, o layout.Options, last *layout.State, report progress.Report) (*cluster, error) {
	before := last != nil && o.Runtime == ""
	o, err := o.Complete(last)
	if err != nil {
		return nil, err
	}
	found := machine.Inspect(ctx)
	choice, err := machine.ChooseRuntime(o.Runtime, found)
	if err != nil {
		return nil, err
	}
	if last != nil && last.Plan.Runtime != choice.Runtime {
		return nil, fmt.Errorf(
			"the nodes of this cluster are made with --runtime %s, not %s; use another --data-dir, or remove the cluster "+
				"first (everynode down --purge)",
			last.Plan.Runtime, choice.Runtime,
		)
	}
	if err := o.ValidateFor(choice.Runtime); err != nil {
		return nil, err
	}
	if err := checkPort(o.APIPort); err != nil {
		return nil, err
	}
	c := &cluster{options: o, machine: found, report: report}
	var subnet netip.Prefix
	if choice.Runtime == layout.RuntimeContainerd {
		if subnet, err = chooseSubnet(o, last); err != nil {
			return nil, err
		}
		if err := images.Built(); err != nil {
			return nil, err
		}
	}
	c.plan = layout.New(o, choice.Runtime, subnet)
	if last != nil {
		c.gone = goneNodes(last.Plan, c.plan)
	}
	kind := "A new cluster in "
	if last != nil {
		kind = "The cluster in "
	}
	report(progress.Event{Kind: progress.Note, Text: kind + o.DataDir + "; this takes a few seconds."})
	if before {
		choice.Why = "Its nodes are made with --runtime " + string(choice.Runtime) + ", as before."
	}
	report(progress.Event{Kind: progress.Note, Text: choice.Why})
	return c, nil
}

// chooseSubnet keeps the nodes' addresses where they were: certificates name them.
func chooseSubnet(o layout.Options, last *layout.State) (netip.Prefix, error) {
	taken, err := network.Routes()
	if err != nil {
		return netip.Prefix{}, err
	}
	if last == nil || !last.Plan.Subnet.IsValid() {
		return layout.PickSubnet(layout.ClusterID(o.DataDir), taken)
	}
	if !layout.Free(last.Plan.Subnet, taken) {
		return netip.Prefix{}, fmt.Errorf(
			"the cluster's network %s overlaps with a route that this machine has got meanwhile (see: ip route); remove that, "+
				"or start afresh with everynode down --purge",
			last.Plan.Subnet,
		)
	}
	return last.Plan.Subnet, nil
}

// goneNodes are the nodes that the cluster had and will not have.
func goneNodes(last, next layout.Plan) []string {
	var gone []string
	for _, n := range last.Nodes {
		if !slices.ContainsFunc(next.Nodes, func(m layout.Node) bool { return m.Name == n.Name }) {
			gone = append(gone, n.Name)
		}
	}
	return gone
}

// checkPort sees whether the API can listen.
func checkPort(port int) error {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return fmt.Errorf("port %d of 127.0.0.1 is in use%s; choose another with --api-port", port, userOf(port))
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("port %d may not be used without root; choose one above 1023 with --api-port", port)
	case err != nil:
		return fmt.Errorf("listen on port %d: %w", port, err)
	}
	return l.Close()
}

// userOf names the process that listens on a TCP port, where that can be seen.
func userOf(port int) string {
	inode := listenerInode(port)
	if inode == "" {
		return ""
	}
	links, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, link := range links {
		if to, err := os.Readlink(link); err != nil || to != "socket:["+inode+"]" {
			continue
		}
		pid := strings.Split(link, "/")[2]
		name, _ := os.ReadFile("/proc/" + pid + "/comm")
		return fmt.Sprintf(" by %s (process %s)", strings.TrimSpace(string(name)), pid)
	}
	return ""
}

// listenerInode finds the socket that listens on a TCP port.
func listenerInode(port int) string {
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		raw, err := os.ReadFile(table)
		if err != nil {
			continue
		}
		if inode := parseListener(string(raw), port); inode != "" {
			return inode
		}
	}
	return ""
}

// parseListener finds the inode of the listening socket of a port in the text
// of /proc/net/tcp.
func parseListener(table string, port int) string {
	const local, state, inode, listening = 1, 3, 9, "0A"
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) > inode && f[state] == listening && strings.HasSuffix(f[local], fmt.Sprintf(":%04X", port)) {
			return f[inode]
		}
	}
	return ""
}
