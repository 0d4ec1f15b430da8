package fit

// TextDisks is what a node is reported with where another pod uses the disk.
const TextDisks = "node(s) had no available disk"

// checkDisks: a disk is used by one pod of a node.
func checkDisks(q *Question, node *trialNode) []Reason {
	if len(q.pod.disks) == 0 {
		return nil
	}
	for _, other := range node.Pods {
		for _, used := range other.disks {
			for _, wanted := range q.pod.disks {
				if used.Conflicts(wanted) {
					return fails(Disks, TextDisks, "", false)
				}
			}
		}
	}
	return nil
}
