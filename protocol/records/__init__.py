"""Records and the batches they travel in: the bytes that producer, disk, replica and consumer share."""
