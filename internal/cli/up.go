package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/everynode/everynode/internal/apiserver/options"
	"github.com/everynode/everynode/internal/cli/command"
	"github.com/everynode/everynode/internal/local"
	"github.com/everynode/everynode/internal/local/layout"
	"github.com/everynode/everynode/internal/local/nodeinit"
	"github.com/everynode/everynode/internal/local/progress"
)

// progressFD is where a detached supervisor finds the pipe for its progress.
const progressFD = 3

func newUpCommand() *cobra.Command {
	var o layout.Options
	var detach, supervise bool
	api, forServer, faults := options.New(), []string(nil), new(string)
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start a cluster on this machine",
		Long: `Start a cluster on this machine: a control plane and real nodes, each with its
own network, folders, containerd and agent. Where that is not possible (it needs
root, containerd, runc and the CNI plugins) the nodes are simulated.

It runs until Ctrl-C, and leaves its data for the next up. With --detach it runs
in the background until "everynode down".`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := completeUp(cmd, &o); err != nil {
				return err
			}
			if _, err := api.Complete(); err != nil {
				return err
			}
			o.ServerFlags = given(cmd, forServer)
			if err := addFaults(&o, *faults); err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGHUP)
			defer stop()
			switch {
			case supervise:
				return upSupervised(ctx, o)
			case detach:
				return upDetached(ctx, cmd, o)
			default:
				return upForeground(ctx, cmd.OutOrStdout(), o)
			}
		},
	}
	command.AddDataDirFlag(cmd, &o.DataDir)
	f := cmd.Flags()
	f.IntVar(
		&o.Nodes, "nodes", layout.DefaultNodes, "number of nodes (default for a cluster that exists: as many as it had)",
	)
	f.IntVar(
		&o.ControlPlanes, "control-planes", 1,
		"number of servers, 1, 3 or 5: of three one may be lost, of five two (default for a cluster that exists: as many "+
			"as it had)",
	)
	f.StringVar(
		(*string)(&o.Runtime), "runtime", string(layout.RuntimeAuto),
		"what nodes are made of: containerd, simulated, or auto for containerd where this machine can",
	)
	f.IntVar(&o.APIPort, "api-port", layout.DefaultAPIPort, "port of the API on 127.0.0.1")
	f.StringVar(
		&o.PodNetwork, "pod-network", layout.DefaultPodNetwork,
		"how the nodes connect their pods: auto, host-gw, vxlan, or none (a network daemon of yours)",
	)
	f.BoolVar(&detach, "detach", false, "go on in the background")
	f.BoolVar(&supervise, "supervise", false, "be the background process, with progress to file "+strconv.Itoa(progressFD))
	_ = f.MarkHidden("supervise")
	faults = addFaultsFlag(f)
	forServer = addAPIFlags(cmd, api)
	cmd.AddCommand(newNodeInitCommand())
	return cmd
}

// newNodeInitCommand is for up itself: the first process of a node.
func newNodeInitCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "node-init",
		Short:  "Be the first process of a node (for everynode itself)",
		Hidden: true,
		Args:   command.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return nodeinit.Run(os.Stdin, os.Stdout)
		},
	}
}

// given returns those of the flags that were given, as arguments for another process.
func given(cmd *cobra.Command, names []string) (args []string) {
	for _, name := range names {
		f := cmd.Flags().Lookup(name)
		if !f.Changed {
			continue
		}
		list, several := f.Value.(pflag.SliceValue)
		switch {
		case several && f.Value.Type() == "stringArray":
			for _, one := range list.GetSlice() {
				args = append(args, "--"+name+"="+one)
			}
		case several:
			args = append(args, "--"+name+"="+strings.Join(list.GetSlice(), ","))
		default:
			args = append(args, "--"+name+"="+f.Value.String())
		}
	}
	return args
}

// completeUp fills in what flags alone do not say. A flag that was not given
// leaves its option zero, which means: as the cluster was before.
func completeUp(cmd *cobra.Command, o *layout.Options) error {
	for flag, reset := range map[string]func(){
		"nodes": func() { o.Nodes = 0 }, "runtime": func() { o.Runtime = "" }, "api-port": func() { o.APIPort = 0 },
		"pod-network": func() { o.PodNetwork = "" }, "control-planes": func() { o.ControlPlanes = 0 },
	} {
		if !cmd.Flags().Changed(flag) {
			reset()
		} else if flag == "nodes" && o.Nodes < 1 {
			return fmt.Errorf("--nodes %d: a cluster needs at least one node", o.Nodes)
		} else if flag == "control-planes" && o.ControlPlanes < 1 {
			return fmt.Errorf("--control-planes %d: a cluster needs a server; use 1, 3 or 5", o.ControlPlanes)
		}
	}
	dir, err := filepath.Abs(o.DataDir)
	if err != nil {
		return fmt.Errorf("find the data dir: %w", err)
	}
	o.DataDir = dir
	o.Executable, err = os.Executable()
	if err != nil {
		return fmt.Errorf("find this program's file: %w", err)
	}
	o.Program = os.Args[0]
	if dir != command.DefaultDataDir() {
		o.DirFlag = " --data-dir " + dir
	}
	return nil
}

// upForeground runs the cluster in this process.
func upForeground(ctx context.Context, out io.Writer, o layout.Options) error {
	screen := progress.NewScreen(out, command.IsTerminal(out))
	defer screen.Close()
	err := local.Up(ctx, o, func(e progress.Event) {
		if e.Kind == progress.Ready {
			e.Text += "\nor with Ctrl-C here."
		}
		screen.Report(e)
	})
	return alreadyUp(err, screen.Report)
}

// alreadyUp turns the error that a cluster runs already into how to use it.
func alreadyUp(err error, report progress.Report) error {
	var running *local.RunningError
	if errors.As(err, &running) && running.Phase == layout.PhaseReady {
		report(progress.Event{Kind: progress.Ready, Text: "This cluster runs already.\n" + running.Usage})
		return nil
	}
	return err
}

// upSupervised is the background process of upDetached.
func upSupervised(ctx context.Context, o layout.Options) error {
	pipe := os.NewFile(progressFD, "progress")
	syscall.CloseOnExec(progressFD)
	report := progress.ReportTo(pipe)
	err := alreadyUp(local.Up(ctx, o, report), report)
	if err != nil {
		report(progress.Event{Kind: progress.Error, Text: err.Error()})
	}
	return err
}

// upDetached starts the background process and shows its progress until the
// cluster is ready. Ctrl-C until then stops it.
func upDetached(ctx context.Context, cmd *cobra.Command, o layout.Options) error {
	log, forget, err := local.OpenSupervisorLog(o.DataDir)
	if err != nil {
		return err
	}
	defer log.Close()
	background, reports, err := startSupervisor(o, log)
	if err != nil {
		forget()
		return err
	}
	defer reports.Close()
	unhook := context.AfterFunc(ctx, func() { _ = background.Process.Signal(syscall.SIGTERM) })
	defer unhook()
	screen := progress.NewScreen(cmd.OutOrStdout(), command.IsTerminal(cmd.OutOrStdout()))
	defer screen.Close()
	ready := errors.New("ready")
	var failure error
	err = progress.Read(reports, func(e progress.Event) error {
		if e.Kind == progress.Error {
			failure = errors.New(e.Text)
			return nil
		}
		screen.Report(e)
		if e.Kind == progress.Ready {
			return ready
		}
		return nil
	})
	switch {
	case errors.Is(err, ready):
		return nil
	case ctx.Err() != nil:
		_ = background.Wait()
		return errors.New("interrupted; the cluster was stopped")
	case failure != nil:
		_ = background.Wait()
		forget()
		return failure
	case err != nil:
		return err
	default:
		return fmt.Errorf("the background process ended before the cluster was ready; see %s", local.SupervisorLog(o.DataDir))
	}
}

// startSupervisor starts this program again, in a session of its own and with
// its output in the log, and returns the pipe with its reports.
func startSupervisor(o layout.Options, log *os.File) (*exec.Cmd, *os.File, error) {
	progress, progressIn, err := os.Pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("make a pipe: %w", err)
	}
	defer progressIn.Close()
	// The same command line, so that what was not given stays so.
	background := &exec.Cmd{
		Path: o.Executable, Args: append(append([]string{}, os.Args...), "--supervise"),
		Stdout: log, Stderr: log, ExtraFiles: []*os.File{progressIn},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if err := background.Start(); err != nil {
		progress.Close()
		return nil, nil, fmt.Errorf("start the background process: %w", err)
	}
	return background, progress, nil
}
