// Package admin is the commands of who runs the servers of a cluster: members, keys and certificates, join tokens,
// backups. Most need the data folder of a server.
package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/everynode/everynode/internal/cli/command"
	"github.com/everynode/everynode/internal/server/membership"
	"github.com/everynode/everynode/internal/storage/members"
)

func NewMembers() *cobra.Command {
	var dataDir string
	cmd := &cobra.Command{
		Use:   "members",
		Short: "List the servers of the cluster, and how they are",
		Long: `List the servers of the cluster, and how they are. Run this where one of them runs.

LAG is how many changes a server's database is behind the leader's.`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := ListMembers(cmd.Context(), dataDir)
			if err != nil {
				return err
			}
			return printMembers(cmd.OutOrStdout(), list)
		},
	}
	command.AddDataDirFlag(cmd, &dataDir)
	cmd.AddCommand(newMembersRemoveCommand(), newMembersResetCommand())
	return cmd
}

func newMembersRemoveCommand() *cobra.Command {
	var dataDir string
	cmd := &cobra.Command{
		Use:   "remove NAME",
		Short: "Take a lost server off the list",
		Long: `Take a lost server off the list, so that it does not count in majorities any more. It
cannot come back with the data that it has. Run this where another server
runs. A server that has never started has no name; give its ID.`,
		Args: command.OneArg("the name of a server"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := insistently.ask(cmd.Context(), cmd.ErrOrStderr(), func(ctx context.Context) error {
				_, err := askServer(ctx, dataDir, http.MethodDelete, members.Path+"/"+url.PathEscape(args[0]))
				return err
			}); err != nil {
				return fmt.Errorf("remove the server %s: %w", args[0], err)
			}
			fmt.Fprintf(
				cmd.OutOrStdout(),
				"The server %s is not one of the cluster's any more. Its disk holds the cluster's keys: wipe it, or, if it may "+
					"be in wrong hands, replace them, "+
					"\"everynode certificates rotate-ca --servers\" first.\n",
				args[0],
			)
			return nil
		},
	}
	command.AddDataDirFlag(cmd, &dataDir)
	return cmd
}

func newMembersResetCommand() *cobra.Command {
	var dataDir string
	cmd := &cobra.Command{
		Use:   "reset",
		Short: "Make this machine's server the only one, when a majority is lost for good",
		Long: `Make this machine's server the only one, with the data that it has, when a majority
of the servers is lost for good. Stop it first. What the others had and this one had
not yet got is lost; none of them may ever be started again with the data that it has.
Afterwards start this server, and let new ones join.`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := membership.Reset(cmd.Context(), dataDir, time.Now()); err != nil {
				return err
			}
			fmt.Fprintln(
				cmd.OutOrStdout(), "This server is the only one now. Start it; then others can join, with empty data directories.",
			)
			return nil
		},
	}
	command.AddDataDirFlag(cmd, &dataDir)
	return cmd
}

func NewServerLeave() *cobra.Command {
	var dataDir string
	cmd := &cobra.Command{
		Use:   "leave",
		Short: "Have this machine's server leave the cluster, and stop",
		Args:  command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			name, err := membership.NameIn(dataDir)
			if err == nil {
				err = insistently.ask(cmd.Context(), cmd.ErrOrStderr(), func(ctx context.Context) error {
					_, err := askServer(ctx, dataDir, http.MethodPost, members.LeavePath+"?name="+url.QueryEscape(name))
					return err
				})
			}
			if err != nil {
				return fmt.Errorf("leave the other servers: %w", err)
			}
			fmt.Fprintf(
				cmd.OutOrStdout(), "This server has left the cluster, and stops. Remove %s when its data is not needed.\n", dataDir,
			)
			return nil
		},
	}
	command.AddDataDirFlag(cmd, &dataDir)
	return cmd
}

// askServer asks the server of a data directory, as its administrator.
func askServer(ctx context.Context, dataDir, method, path string) ([]byte, error) {
	config, err := adminConfig(dataDir)
	if err != nil {
		return nil, err
	}
	config.Timeout = time.Minute
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("use the administrator's kubeconfig: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(config.Host, "/")+path, nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("%w; does the server run?", err)
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	switch text := strings.TrimSpace(string(answer)); response.StatusCode {
	case http.StatusOK:
		return answer, nil
	case http.StatusServiceUnavailable, http.StatusTooManyRequests, http.StatusGatewayTimeout:
		return nil, notNow{errors.New(text)}
	default:
		return nil, errors.New(text)
	}
}

// notNow is an answer that may soon be another.
type notNow struct{ error }

// Unwrap implements errors.Is.
func (e notNow) Unwrap() error { return e.error }

// persistence is how long a question is asked again that cannot be answered now.
type persistence struct{ patience, pause time.Duration }

// insistently is longer than it takes the servers to see who answers.
var insistently = persistence{time.Minute, time.Second}

// ask asks until there is an answer, and says once why it waits.
func (p persistence) ask(ctx context.Context, tell io.Writer, question func(context.Context) error) error {
	end := time.Now().Add(p.patience)
	for told := ""; ; {
		err := question(ctx)
		var busy notNow
		if err == nil || !errors.As(err, &busy) {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf(
				"%w; that did not change in %v: see \"everynode members\", and try again when the servers that count are Ready",
				err, p.patience,
			)
		}
		if told != err.Error() {
			told = err.Error()
			fmt.Fprintf(tell, "Not yet: %s. Trying again for %v.\n", told, p.patience)
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(p.pause):
		}
	}
}

func adminConfig(dataDir string) (*rest.Config, error) {
	path := filepath.Join(dataDir, "kubeconfig")
	if err := command.CheckKubeconfig(path); err != nil {
		return nil, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, fmt.Errorf("read the administrator's kubeconfig %s: %w", path, err)
	}
	return config, nil
}

func ListMembers(ctx context.Context, dataDir string) (list members.List, err error) {
	answer, err := askServer(ctx, dataDir, http.MethodGet, members.Path)
	if err == nil {
		err = json.Unmarshal(answer, &list)
	}
	if err != nil {
		return list, fmt.Errorf("ask which servers there are: %w", err)
	}
	return list, nil
}

func printMembers(out io.Writer, list members.List) error {
	w := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	fmt.Fprintln(w, "NAME\tADDRESS\tSTATUS\tROLE\tLAG\tSIZE\tVERSION")
	var newest uint64
	voters, silent, leads := 0, 0, false
	for _, s := range list.Servers {
		newest = max(newest, s.Applied)
		leads = leads || s.Leads
		if !s.Learner {
			voters++
			if s.Problem != "" {
				silent++
			}
		}
	}
	for _, s := range list.Servers {
		name, status, address := nameOf(s), cmp.Or(s.Differs, "Ready"), strings.TrimPrefix(s.URL, "https://")
		if address == "" {
			address = "<none>"
		}
		if s.Problem != "" {
			fmt.Fprintf(w, "%s\t%s\tSilent\t%s\t\t\t\n", name, address, role(s))
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\t%s\n", name, address, status, role(s), newest-s.Applied, size(s.Bytes),
			s.Version)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if !leads {
		fmt.Fprintf(
			out,
			"\nNo majority: %d of %d servers answer, %d are needed. Nothing can be changed until more of them run; if they "+
				"are lost for good, stop this one and run \"everynode members reset\" here.\n",
			voters-silent, voters, voters/2+1,
		)
	}
	if slices.ContainsFunc(list.Servers, func(s members.Server) bool { return s.Differs == members.Disputed }) {
		fmt.Fprint(out, "\nThe databases of the disputed servers differ, and no majority of the servers agrees. "+
			"None can join. Find out which is right and remove the others: docs/operations.md, A database is corrupt.\n")
	}
	if old := outdated(list); len(old) > 0 {
		fmt.Fprintf(
			out,
			"\n%s: still uses a database authority that was replaced, until it restarts, which it does by itself when "+
				"the others are ready.\n",
			strings.Join(old, ", "),
		)
	}
	return nil
}

// nameOf is a server's name; one that has never started has an ID only.
func nameOf(s members.Server) string { return cmp.Or(s.Name, s.ID) }

// role is what a server does that others do not.
func role(s members.Server) string {
	var roles []string
	if s.Learner {
		roles = append(roles, "catching up")
	}
	if s.Leads {
		roles = append(roles, "leader")
	}
	if s.Loops {
		roles = append(roles, "control loops")
	}
	if s.GivesWay != "" {
		roles = append(roles, "gives way")
	}
	if len(roles) == 0 {
		return "<none>"
	}
	return strings.Join(roles, ", ")
}

// size rounds up to whole Mi: a database that has just begun is not nothing.
func size(bytes int64) string {
	const unit = 1 << 20
	return resource.NewQuantity((bytes+unit-1)/unit*unit, resource.BinarySI).String()
}
