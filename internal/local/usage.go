package local

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"text/tabwriter"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/local/layout"
	nodefacts "github.com/everynode/everynode/internal/node"
)

// shownNodes bounds the table at the end of up; kubectl shows the others.
const shownNodes = 12

// nodesTable shows the nodes as kubectl would.
func nodesTable(nodes []corev1.Node) string {
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "NAME\tSTATUS\tINTERNAL-IP\tVERSION\tRUNTIME")
	for i := range nodes[:min(len(nodes), shownNodes)] {
		n := &nodes[i]
		fmt.Fprintf(w, "%s\tReady\t%s\t%s\t%s\n", n.Name, orNone(nodefacts.Address(n, corev1.NodeInternalIP)),
			orNone(n.Status.NodeInfo.KubeletVersion), orNone(n.Status.NodeInfo.ContainerRuntimeVersion))
	}
	_ = w.Flush()
	if more := len(nodes) - shownNodes; more > 0 {
		fmt.Fprintf(&b, "... and %d more\n", more)
	}
	return b.String()
}

func orNone(text string) string {
	if text == "" {
		return "<none>"
	}
	return text
}

// usage tells how to use a cluster that runs. table is shown above it.
func usage(p layout.Plan, o layout.Options, table string) string {
	kubectl, down := o.Program+" kubectl"+o.DirFlag, o.Program+" down"+o.DirFlag
	var b strings.Builder
	if table != "" {
		fmt.Fprintf(&b, "\n%s\n", table)
	}
	fmt.Fprintf(&b, `The cluster is ready. Its kubeconfig is %[1]s
Try:
  %[2]s get nodes -o wide
  %[2]s apply -f %[3]s
  %[2]s get pods -A -o wide
`, p.Kubeconfig(), kubectl, filepath.Join(p.ExamplesDir(), "log-agent.yaml"))
	logs := p.ServerLog()
	if len(p.Servers) > 0 {
		logs = filepath.Dir(logs)
		fmt.Fprintf(&b, "Servers: %s\n", o.Program+" members"+o.DirFlag)
	}
	if p.Runtime == layout.RuntimeContainerd {
		fmt.Fprintf(&b, "Logs: %s, and each node's own %s\n", logs, filepath.Join(p.NodeDir("NODE"), "log"))
	} else {
		fmt.Fprintf(&b, "Log: %s\n", logs)
	}
	fmt.Fprintf(&b, "Stop it with: %s   (with --purge its data goes too)", down)
	return b.String()
}
