package admin

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/everynode/everynode/internal/apiserver/authn"
	"github.com/everynode/everynode/internal/cli/command"
	"github.com/everynode/everynode/internal/node/identity"
)

func NewNode() *cobra.Command {
	cmd := &cobra.Command{Use: "node", Short: "Nodes and their certificates"}
	command.Group(cmd)
	cmd.AddCommand(newNodeRevokeCommand())
	return cmd
}

func newNodeRevokeCommand() *cobra.Command {
	var dataDir string
	cmd := &cobra.Command{
		Use:   "revoke NODE",
		Short: "Revoke the certificates of a node",
		Long: `Revoke the certificates of a node, from now on and on every API server: for a machine
that was stolen or broken into. Its open requests end, its agent is no longer called,
and its name is free for a machine that joins with a new token.

Run this where the control plane runs.`,
		Args: command.OneArg("the name of a node"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := identity.CheckName(args[0]); err != nil {
				return err
			}
			client, err := adminClient(dataDir)
			if err != nil {
				return err
			}
			return revoke(cmd.Context(), client, args[0], time.Now, cmd.OutOrStdout())
		},
	}
	command.AddDataDirFlag(cmd, &dataDir)
	return cmd
}

// adminClient reaches the control plane of a data directory as its administrator.
func adminClient(dataDir string) (kubernetes.Interface, error) {
	config, err := adminConfig(dataDir)
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("use the administrator's kubeconfig: %w", err)
	}
	return client, nil
}

// revoke writes the revocation first: from then on the node is shut out, whatever
// becomes of the rest, which can be done again.
func revoke(ctx context.Context, client kubernetes.Interface, node string, now func() time.Time, out io.Writer) error {
	secrets := client.CoreV1().Secrets(metav1.NamespaceSystem)
	// Certificates say when they were issued in whole seconds.
	wanted := identity.Revocation{Node: node, Before: now().Truncate(time.Second).Add(time.Second)}.Secret()
	_, err := secrets.Create(ctx, wanted, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = secrets.Update(ctx, wanted, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("revoke the certificates of node %s: %w; nothing has changed", node, err)
	}
	fmt.Fprintf(
		out,
		"The certificates of node %s are refused by every API server. Its open requests end, and its agent is no longer "+
			"called.\n",
		node,
	)
	if err := secrets.Delete(ctx, identity.RecordName(node), metav1.DeleteOptions{}); err != nil &&
		!apierrors.IsNotFound(err) {
		return fmt.Errorf("free the name of node %s: %w; its certificates are refused, run this again to free the name",
			node, err)
	}
	// A token that is made after this command is newer than the revocation.
	time.Sleep(time.Until(now().Truncate(time.Second).Add(time.Second)))
	fmt.Fprintf(out, "Its name is free for a machine that joins with a token made from now on.\n\nWhat is left to you:\n")
	return tellWhatIsLeft(ctx, client, node, out)
}

func tellWhatIsLeft(ctx context.Context, client kubernetes.Interface, node string, out io.Writer) error {
	pods, err := client.CoreV1().Pods("").List(ctx,
		metav1.ListOptions{FieldSelector: "spec.nodeName=" + node, ResourceVersion: "0"})
	if err != nil {
		return fmt.Errorf("list the pods of node %s: %w; its certificates are refused", node, err)
	}
	found, err := client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	switch {
	case err == nil:
		fmt.Fprintf(
			out,
			"* %d pods are bound to it; tokens of their accounts that it has are good until they are gone:\n      everynode "+
				"kubectl delete node %s\n",
			len(pods.Items), node,
		)
		tellWhatHolds(found, pods.Items, out)
	case apierrors.IsNotFound(err):
		fmt.Fprintf(out, "* There is no Node of that name; nothing runs under it.\n")
	default:
		return fmt.Errorf("look for node %s: %w; its certificates are refused", node, err)
	}
	tokens, err := client.CoreV1().Secrets(metav1.NamespaceSystem).List(ctx,
		metav1.ListOptions{FieldSelector: "type=" + string(authn.BootstrapSecretType)})
	if err != nil {
		return fmt.Errorf("list the join tokens: %w; the certificates of node %s are refused", err, node)
	}
	if names := namesOfSecrets(tokens.Items); len(names) > 0 {
		fmt.Fprintf(
			out,
			"* Earlier join tokens are still good for other names; if the machine may know one:\n      everynode kubectl -n "+
				"kube-system delete secret %s\n",
			strings.Join(names, " "),
		)
	}
	fmt.Fprintf(out, "* It knows the Secrets that its pods used: change what is in them.\n"+
		"* To let the machine join again: everynode token create, then start its agent with that token.\n")
	return nil
}

// tellWhatHolds names finalizers: what has one is not gone when it is deleted, and neither is
// what the machine may do with it.
func tellWhatHolds(node *corev1.Node, pods []corev1.Pod, out io.Writer) {
	const free = `-p '{"metadata":{"finalizers":null}}' --type merge`
	if len(node.Finalizers) > 0 {
		fmt.Fprintf(
			out,
			"* Finalizers hold up its deletion (%s); if whoever set them does not remove them:\n      everynode kubectl "+
				"patch node %s %s\n",
			strings.Join(node.Finalizers, ", "), node.Name, free,
		)
	}
	for i := range pods {
		if p := &pods[i]; len(p.Finalizers) > 0 {
			fmt.Fprintf(out, "* Finalizers hold up the end of its pod %s (%s):\n      everynode kubectl -n %s patch pod %s %s\n",
				p.Name, strings.Join(p.Finalizers, ", "), p.Namespace, p.Name, free)
		}
	}
}

func namesOfSecrets(secrets []corev1.Secret) (names []string) {
	for _, s := range secrets {
		names = append(names, s.Name)
	}
	return names
}
