package admin

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/everynode/everynode/internal/cli/command"
	"github.com/everynode/everynode/internal/node"
	"github.com/everynode/everynode/internal/node/identity"
	"github.com/everynode/everynode/internal/pki"
)

// How old a replacement should be before it is finished: agents ask every five
// minutes and use old connections for five more; pods get new tokens within an hour.
const (
	authorityOverlap = 15 * time.Minute
	accountOverlap   = 75 * time.Minute
)

func NewCertificates() *cobra.Command {
	cmd := &cobra.Command{Use: "certificates", Short: "The keys and certificates of the control plane"}
	command.Group(cmd)
	cmd.AddCommand(newCertificatesListCommand(), newCertificatesRenewCommand(),
		newRotationCommand(
			"rotate-ca",
			"Replace the cluster's certificate authority, with --nodes that of nodes, or with --servers that of the servers' "+
				"databases",
			`Make a new certificate authority. It signs from now on; the old one is trusted beside
it until --finish. Nodes follow by themselves within some minutes: they learn of the
new one from the server, renew their certificates, and restart nothing. So does
kube-root-ca.crt in every namespace. The administrator's kubeconfig is rewritten;
others, and earlier join tokens, are good until --finish.

With --servers it is the authority by which the databases of several servers know each
other. The other servers take it within seconds, and nobody else gets it: do this when a
server was removed whose disk may be in wrong hands. After --finish the servers
restart, one after another, so that nothing relies on the old authority any more.`,
			pki.ClusterAuthority,
		),
		newRotationCommand("rotate-service-account-key", "Replace the key that signs the tokens of service accounts",
			`Make a new key for the tokens of service accounts. It signs from now on; tokens that
the old one signed are accepted until --finish. Pods get new tokens by themselves
within an hour.`, pki.ServiceAccounts))
	return cmd
}

const certificatesWhere = `

Run this where the control plane runs. A running server notices it within seconds.
If there are several, the others take what was replaced from it by themselves.`

func newCertificatesListCommand() *cobra.Command {
	var dataDir string
	cmd := &cobra.Command{
		Use: "list", Short: "Show every key and certificate of the control plane, and when it expires",
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			items, err := pki.Inspect(filepath.Join(dataDir, "pki"))
			if err != nil {
				return err
			}
			ofPeers, err := pki.InspectPeers(filepath.Join(dataDir, "peers"))
			if err != nil {
				return err
			}
			items = append(items, ofPeers...)
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 3, ' ', 0)
			fmt.Fprintln(w, "FILE\tSUBJECT\tENDS\tSTATE")
			for _, i := range items {
				ends := "-"
				if !i.Until.IsZero() {
					ends = fmt.Sprintf("%s (%d days)", i.Until.Format(time.DateOnly),
						int(time.Until(i.Until).Hours()/24))
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", i.File, orDash(i.Subject), ends, i.State)
			}
			return w.Flush()
		},
	}
	command.AddDataDirFlag(cmd, &dataDir)
	return cmd
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func newCertificatesRenewCommand() *cobra.Command {
	var dataDir string
	cmd := &cobra.Command{
		Use:   "renew [NAME...]",
		Short: "Issue the server's own certificates again, with new keys",
		Long: `Issue the server's own certificates again, with new keys: those that are named, or all.
They are ` + pki.Names() + `. The server renews them
by itself before they expire; this is for keys that somebody may have seen. What was issued
before is good until it expires; rotate-ca puts an end to that.` + certificatesWhere,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := pki.Renew(filepath.Join(dataDir, "pki"), args, time.Now()); err != nil {
				return err
			}
			if err := rewriteKubeconfig(dataDir); err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), "Renewed. The kubeconfig of the administrator holds the new certificate.")
			return nil
		},
	}
	command.AddDataDirFlag(cmd, &dataDir)
	return cmd
}

func rewriteKubeconfig(dataDir string) error {
	return pki.RewriteKubeconfig(filepath.Join(dataDir, "pki"), filepath.Join(dataDir, "kubeconfig"), time.Now())
}

func newRotationCommand(use, short, long, which string) *cobra.Command {
	var (
		dataDir                       string
		finish, force, nodes, servers bool
	)
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long + certificatesWhere, Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if nodes {
				which = pki.NodeAuthority
			}
			if servers && nodes {
				return fmt.Errorf("--servers and --nodes are two authorities: replace one after the other; %s",
					command.SeeHelp(cmd))
			}
			if force && !finish {
				return fmt.Errorf("--force is for --finish; %s", command.SeeHelp(cmd))
			}
			r := rotation{dataDir: dataDir, which: which, command: cmd.CommandPath(), now: time.Now(),
				out: cmd.OutOrStdout()}
			if nodes {
				r.command += " --nodes"
			}
			if servers {
				return peerRotation{rotation: r, patience: beginPatience}.run(cmd.Context(), finish, force)
			}
			if finish {
				return r.finish(cmd.Context(), force)
			}
			return r.begin()
		},
	}
	command.AddDataDirFlag(cmd, &dataDir)
	f := cmd.Flags()
	f.BoolVar(&finish, "finish", false, "stop trusting what was replaced")
	f.BoolVar(&force, "force", false, "with --finish: even if somebody may still need the old one")
	if which == pki.ClusterAuthority {
		f.BoolVar(&nodes, "nodes", false, "the authority of the nodes' serving certificates instead")
		f.BoolVar(&servers, "servers", false, "the authority of the servers' databases among each other instead")
	}
	return cmd
}

// rotation is the replacement of an authority or a key.
type rotation struct {
	dataDir, which, command string
	now                     time.Time
	out                     io.Writer
}

func (r rotation) keys() string { return filepath.Join(r.dataDir, "pki") }

func (r rotation) begin() error {
	if err := pki.Rotate(r.keys(), r.which, r.now); err != nil {
		return err
	}
	// A server that runs must know the new one before the administrator shows its certificate.
	time.Sleep(pki.FollowTime)
	if err := rewriteKubeconfig(r.dataDir); err != nil {
		return err
	}
	fmt.Fprintf(
		r.out,
		"The new one signs from now on. The old one is still trusted.\nWhen everybody has followed: %s "+
			"--finish\n",
		r.command,
	)
	return nil
}

func (r rotation) finish(ctx context.Context, force bool) error {
	if !force {
		if err := r.ready(ctx); err != nil {
			return fmt.Errorf("%w; --force finishes anyway", err)
		}
	}
	if err := pki.Finish(r.keys(), r.which, r.now); err != nil {
		return err
	}
	if err := rewriteKubeconfig(r.dataDir); err != nil {
		return err
	}
	fmt.Fprintln(r.out, "Finished. What was replaced is no longer trusted.")
	return nil
}

// ready says what speaks against finishing now.
func (r rotation) ready(ctx context.Context) error {
	since, overlap, err := r.since()
	if err != nil || since.IsZero() {
		return err // Finish says that there is nothing to finish
	}
	if age := r.now.Sub(since); age < overlap {
		return fmt.Errorf("the new one is %s old, and it takes %s until everybody uses it", age.Truncate(time.Second),
			overlap)
	}
	if r.which == pki.ServiceAccounts {
		return nil
	}
	client, err := adminClient(r.dataDir)
	if err != nil {
		return err
	}
	hash, err := pki.AuthorityHash(r.keys(), r.which)
	if err != nil {
		return err
	}
	behind, err := nodesBehind(ctx, client, r.which, hash)
	if err != nil {
		return fmt.Errorf("ask which nodes have followed: %w", err)
	}
	if len(behind) > 0 {
		return fmt.Errorf("%d nodes have no certificate of the new CA yet (%s): find out why, or delete them", len(behind),
			strings.Join(behind[:min(len(behind), 5)], ", "))
	}
	return nil
}

func (r rotation) since() (since time.Time, overlap time.Duration, err error) {
	if r.which == pki.ServiceAccounts {
		since, _, err = pki.Replaced(r.keys())
		return since, accountOverlap, err
	}
	since, err = pki.AuthoritySince(r.keys(), r.which)
	return since, authorityOverlap, err
}

// nodesBehind are the nodes with an agent whose newest certificate is of another
// authority.
func nodesBehind(ctx context.Context, client kubernetes.Interface, which, hash string) (behind []string, err error) {
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return nil, err
	}
	for _, n := range nodes.Items {
		if node.AgentAddress(&n) == "" {
			continue // simulated
		}
		secret, err := client.CoreV1().Secrets(metav1.NamespaceSystem).Get(ctx, identity.RecordName(n.Name),
			metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
		record := identity.Record{}
		if err == nil {
			if record, err = identity.ReadRecord(secret); err != nil {
				return nil, err
			}
		}
		if (which == pki.ClusterAuthority && record.ClientIssuer != hash) ||
			(which == pki.NodeAuthority && record.ServingIssuer != hash) {
			behind = append(behind, n.Name)
		}
	}
	return behind, nil
}
