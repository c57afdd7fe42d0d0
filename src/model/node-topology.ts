/** Where this node stands in the cluster: what traffic policies and topology hints are compared with. */
export interface NodeTopology {
  /** As endpoints name it. Absent while it is not known: no endpoint counts as local then. */
  readonly nodeName?: string;
  /** The node's label `topology.kubernetes.io/zone`. */
  readonly zone?: string;
}
