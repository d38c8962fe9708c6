"""Attention: scores, weights, kernels, and the modules that mix positions with them.

Axis letters of the shapes, in addition to those of `heedful.nn.layout`:

| letter | axis |
|---|---|
| T, T_s | all tokens of a batch, packed; those of the source |
| B | sequences (sentences) |
| N | hypotheses in decoding, N / B for each sentence |
| Q, K, S | padded length of the queries; of the keys; of the source, or of any one sequence |
| H, G | heads of the queries; of keys and values, each shared by H / G query heads |
| h | heads, if H or G |
| d, d_model | width of the model |
| d_q, d_k, d_v | width of the queries, keys and values of a head |
| d_p | width of a key prepared for the score (`ScoreFunction.prepare`) |
| d_a | width of the sums in an additive score |
| hd | heads concatenated: their number times their width |
| C | positions that a cache can hold |
"""
