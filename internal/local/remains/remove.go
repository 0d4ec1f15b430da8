package remains

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/everynode/everynode/internal/local/layout"
	"github.com/everynode/everynode/internal/local/machine"
	"github.com/everynode/everynode/internal/local/network"
	"github.com/everynode/everynode/internal/local/process"
)

// ServerPatience is how long the control plane may take to stop.
const ServerPatience = 20 * time.Second

// Observe looks for what exists of a cluster.
func Observe(s layout.State) (Observed, error) {
	o := Observed{Alive: map[process.Process]bool{}}
	var err error
	o.BootID, err = process.BootID()
	if err != nil {
		return o, err
	}
	known := []process.Process{s.Server}
	for _, server := range s.Others {
		known = append(known, server)
	}
	for _, n := range s.Nodes {
		known = append(known, n.Init)
	}
	for _, p := range known {
		o.Alive[p] = p.Alive()
	}
	o.Netns, err = network.NetnsNames(s.Plan)
	if err != nil {
		return o, err
	}
	o.Strays, err = strays(s.Plan, o.Netns)
	if err != nil {
		return o, err
	}
	if s.Plan.Runtime != layout.RuntimeContainerd {
		return o, nil
	}
	links, err := network.HostLinks()
	if err != nil {
		return o, err
	}
	o.HostLink = slices.Contains(links, s.Plan.HostLink())
	o.Cgroups = cgroupsOf(s.Plan)
	return o, nil
}

// strays finds the processes of a cluster that its state file may not know: those
// in its network namespaces, and those that were started with its mark and not
// written down because the supervisor was killed in between.
func strays(p layout.Plan, netns []string) ([]process.Process, error) {
	namespaces := map[[2]uint64]bool{}
	for _, name := range netns {
		if id, err := fileID(filepath.Join(network.NetnsDir, name)); err == nil {
			namespaces[id] = true
		}
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	settled := time.Now().Add(execPatience)
	var found []process.Process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		// Whatever cannot be read has ended meanwhile, or is another user's.
		dir := filepath.Join("/proc", e.Name())
		id, _ := fileID(filepath.Join(dir, "ns", "net"))
		if !namespaces[id] && !HasMark(process.Environment(dir, settled), p) {
			continue
		}
		if process, err := process.Identify(pid); err == nil {
			found = append(found, process)
		}
	}
	return found, nil
}

// execPatience bounds the wait for processes that are in the middle of an exec.
const execPatience = time.Second

// HasMark reports whether an environment, as /proc shows it, has a cluster's mark.
func HasMark(environment []byte, p layout.Plan) bool {
	return slices.Contains(strings.Split(string(environment), "\x00"), p.Mark())
}

// fileID identifies what a path leads to.
func fileID(path string) ([2]uint64, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return [2]uint64{}, err
	}
	return [2]uint64{st.Dev, st.Ino}, nil
}

func cgroupsOf(p layout.Plan) []string {
	var dirs []string
	for _, mount := range machine.CgroupMounts() {
		dir := filepath.Join(mount, p.CgroupRoot())
		if _, err := os.Stat(dir); err == nil {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// Remove removes everything that exists of a cluster except its data,
// and returns how many things that were. It goes on after a failure, so that
// one thing that sticks does not keep the others.
func Remove(ctx context.Context, s layout.State) (int, error) {
	o, err := Observe(s)
	if err != nil {
		return 0, err
	}
	removals := planRemoval(s, o)
	if len(removals) > 0 && s.Plan.Runtime == layout.RuntimeContainerd && os.Geteuid() != 0 {
		return 0, errors.New("this cluster has real nodes, which only root can remove; run it with sudo")
	}
	err = applyAll(ctx, removals, s.Plan)
	if s.Plan.Runtime != layout.RuntimeContainerd {
		return len(removals), err
	}
	taken, takeErr := takeBack(ctx, s.Plan)
	return len(removals) + taken, errors.Join(err, takeErr)
}

// takeBack undoes what clusters changed on the machine for all of them, if this
// was the last one, and returns how many things that were.
func takeBack(ctx context.Context, p layout.Plan) (int, error) {
	if _, err := os.Stat(machine.ChangesDir); errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	release, err := machine.Lock(ctx)
	if err != nil {
		return 0, err
	}
	defer release()
	links, err := network.HostLinks()
	if err != nil {
		return 0, err
	}
	changes, err := machine.ReadHostChanges()
	if err != nil {
		return 0, err
	}
	removals := planTakingBack(p.HostLink(), links, changes)
	return len(removals), applyAll(ctx, removals, p)
}

func applyAll(ctx context.Context, removals []Removal, p layout.Plan) error {
	var failures []error
	for _, r := range removals {
		if err := r.apply(ctx, p); err != nil {
			failures = append(failures, fmt.Errorf("remove %s %s: %w", r.Kind, r.Name, err))
		}
	}
	return errors.Join(failures...)
}

func (r Removal) apply(ctx context.Context, p layout.Plan) error {
	switch r.Kind {
	case RemoveServer:
		return r.Process.Stop(ctx, ServerPatience)
	case RemoveProcess:
		return r.Process.Kill(ctx)
	case RemoveHostLink:
		return network.RemoveLink(&netlink.Handle{}, r.Name)
	case RemoveNetns:
		return network.RemoveNetns(r.Name)
	case RemoveNAT:
		return network.RemoveNAT(ctx, p)
	case RemoveCgroup:
		return removeCgroup(ctx, r.Name)
	case RemoveDir:
		err := os.Remove(r.Name)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EBUSY) {
			err = nil // somebody else uses it now
		}
		return errors.Join(err, machine.ForgetChange(strings.ReplaceAll(r.Name, "/", "+")))
	case RemoveForwarding:
		return errors.Join(network.SetForwarding("0"), machine.ForgetChange(machine.ForwardingMark))
	default:
		return fmt.Errorf("unknown kind of thing")
	}
}

// cgroupPatience is how long the kernel may take to forget ended processes.
const cgroupPatience = 30 * time.Second

// removeCgroup removes a cgroup, those below it, and the parent of all
// clusters' if it is empty then. The kernel takes a moment to forget processes
// that have just ended, and refuses until then.
func removeCgroup(ctx context.Context, dir string) error {
	waiting, cancel := context.WithTimeout(ctx, cgroupPatience)
	defer cancel()
	for {
		err := removeCgroupTree(dir)
		if err == nil {
			break
		}
		select {
		case <-waiting.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
	if err := os.Remove(filepath.Dir(dir)); err != nil && !errors.Is(err, unix.EBUSY) &&
		!errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func removeCgroupTree(dir string) error {
	var dirs []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			dirs = append(dirs, path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, d := range slices.Backward(dirs) {
		if err := os.Remove(d); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
